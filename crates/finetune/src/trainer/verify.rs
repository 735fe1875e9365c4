//! Comparing a program with the eager one, bit for bit.

use retrograph_runtime::{Strategy, Stream};

use super::lane::Lane;
use crate::checkpoint::{StatePart, StateReader};
use crate::error::{Error, Result};

/// The state of both lanes after `step` must be the same bits: loss and norm, parameters, moments.
pub(super) fn require_equal(
    stream: &Stream,
    (tested, eager): (&Lane, &Lane),
    step: u32,
) -> Result<()> {
    let strategy = tested.program().report().strategy;
    let at = Place { step, strategy };
    let (left, right) = (tested.metrics.download(stream)?, eager.metrics.download(stream)?);
    at.compare("loss and gradient norm", &left, &right)?;
    let names = tested.state.trained_parameters();
    let (mut left, mut right) = (tested.state.reader(stream), eager.state.reader(stream));
    for (index, parameter) in names.iter().enumerate() {
        for part in StatePart::ALL {
            let name = part.tensor_name(&parameter.name);
            at.compare(&name, &left.read(index, part)?, &right.read(index, part)?)?;
        }
    }
    Ok(())
}

#[derive(Clone, Copy)]
struct Place {
    step: u32,
    strategy: Strategy,
}

impl Place {
    fn compare(self, tensor: &str, replayed: &[f32], eager: &[f32]) -> Result<()> {
        let differs = |(left, right): (&f32, &f32)| left.to_bits() != right.to_bits();
        let Some(index) = replayed.iter().zip(eager).position(differs) else { return Ok(()) };
        Err(Error::NotBitEqual {
            step: self.step,
            tensor: tensor.to_owned(),
            index,
            replayed: replayed[index],
            eager: eager[index],
            strategy: self.strategy,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equality_is_that_of_bits() {
        let at = Place { step: 3, strategy: Strategy::Manual };
        assert!(at.compare("t", &[f32::NAN, 1.0], &[f32::NAN, 1.0]).is_ok());
        let error = at.compare("t", &[1.0, 0.0], &[1.0, -0.0]).unwrap_err();
        assert!(matches!(error, Error::NotBitEqual { step: 3, index: 1, .. }), "{error}");
    }
}
