//! Comparing a step with the eager one, bit for bit.

use std::ops::Range;

use retrograph_runtime::{Strategy, Stream};

use super::lane::Lane;
use crate::error::{Error, Result};

/// After a step that took in `positions`, both lanes must hold the same bits: logits, the token,
/// and the keys and values of the positions.
pub(super) fn require_equal(
    stream: &Stream,
    (tested, eager): (&Lane, &Lane),
    positions: Range<usize>,
) -> Result<()> {
    let strategy = tested.report().map_or(Strategy::Eager, |report| report.strategy);
    let at = Place { position: positions.start, strategy };
    at.compare("the logits", &tested.logits(stream)?, &eager.logits(stream)?)?;
    let words = |lane: &Lane| -> Result<Vec<f32>> {
        Ok(lane.sampled_words(stream)?.into_iter().map(|word| word as f32).collect())
    };
    at.compare("the token and its status", &words(tested)?, &words(eager)?)?;
    let pairs = tested.cached(stream, positions.clone()).zip(eager.cached(stream, positions));
    for (left, right) in pairs {
        let ((name, left), (_, right)) = (left?, right?);
        at.compare(&name, &left, &right)?;
    }
    Ok(())
}

#[derive(Clone, Copy)]
struct Place {
    position: usize,
    strategy: Strategy,
}

impl Place {
    fn compare(self, tensor: &str, replayed: &[f32], eager: &[f32]) -> Result<()> {
        let differs = |(left, right): (&f32, &f32)| left.to_bits() != right.to_bits();
        let Some(index) = replayed.iter().zip(eager).position(differs) else { return Ok(()) };
        Err(Error::NotBitEqual {
            step: self.position as u32,
            tensor: tensor.to_owned(),
            index,
            replayed: replayed[index],
            eager: eager[index],
            strategy: self.strategy,
        })
    }
}
