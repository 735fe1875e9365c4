//! Comparing a program with the eager one, bit for bit.

use retrograph_runtime::Stream;

use super::lane::Lane;
use crate::checkpoint::{StatePart, StateReader};
use crate::difference::Compared;
use crate::error::Result;

/// The state of both lanes after `step` must be the same bits: loss and norm, parameters, moments.
pub(super) fn require_equal(
    stream: &Stream,
    (tested, eager): (&Lane, &Lane),
    step: u32,
) -> Result<()> {
    let strategy = tested.program().report().strategy;
    let at = Compared { step, strategy };
    let (left, right) = (tested.metrics.download(stream)?, eager.metrics.download(stream)?);
    at.require("loss and gradient norm", &left, &right)?;
    let names = tested.state.trained_parameters();
    let (mut left, mut right) = (tested.state.reader(stream), eager.state.reader(stream));
    for (index, parameter) in names.iter().enumerate() {
        for part in StatePart::ALL {
            let name = part.tensor_name(&parameter.name);
            at.require(&name, &left.read(index, part)?, &right.read(index, part)?)?;
        }
    }
    Ok(())
}
