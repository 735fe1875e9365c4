//! Comparison of a step with an eager step, bit for bit.

use std::ops::Range;

use retrograph_runtime::{Strategy, Stream};

use super::lane::Lane;
use crate::difference::Compared;
use crate::error::Result;

/// Requires the same bits in both lanes after a step over `positions`: logits, token, and the keys
/// and values of the positions.
pub(super) fn require_equal(
    stream: &Stream,
    (tested, eager): (&Lane, &Lane),
    positions: Range<usize>,
) -> Result<()> {
    let strategy = tested.report().map_or(Strategy::Eager, |report| report.strategy);
    let at = Compared { step: positions.start as u32, strategy };
    at.require("the logits", &tested.logits(stream)?, &eager.logits(stream)?)?;
    let words = |lane: &Lane| -> Result<Vec<f32>> {
        Ok(lane.sampled_words(stream)?.into_iter().map(|word| word as f32).collect())
    };
    at.require("the token and its status", &words(tested)?, &words(eager)?)?;
    let pairs = tested.cached(stream, positions.clone()).zip(eager.cached(stream, positions));
    for (left, right) in pairs {
        let ((name, left), (_, right)) = (left?, right?);
        at.require(&name, &left, &right)?;
    }
    Ok(())
}
