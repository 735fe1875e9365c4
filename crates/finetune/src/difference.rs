//! Where a step and the eager one differ, bit for bit.

use retrograph_runtime::Strategy;

use crate::error::{Error, Result};

/// A step whose results are compared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Compared {
    /// The step of a training, or the position of a text.
    pub(crate) step: u32,
    /// How the step was done that is compared with the eager one.
    pub(crate) strategy: Strategy,
}

impl Compared {
    /// Checks that both have the same bits.
    ///
    /// # Errors
    /// [`Error::NotBitEqual`] with the first element that differs.
    pub(crate) fn require(self, tensor: &str, replayed: &[f32], eager: &[f32]) -> Result<()> {
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
        let at = Compared { step: 3, strategy: Strategy::Manual };
        assert!(at.require("t", &[f32::NAN, 1.0], &[f32::NAN, 1.0]).is_ok());
        let error = at.require("t", &[1.0, 0.0], &[1.0, -0.0]).unwrap_err();
        assert!(matches!(error, Error::NotBitEqual { step: 3, index: 1, .. }), "{error}");
    }
}
