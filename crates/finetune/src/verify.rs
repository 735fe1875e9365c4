//! Verification: every step also runs eagerly, and all results must have the same bits.

use retrograph_runtime::{Strategy, Stream};

use crate::error::{Error, Result};
use crate::programs::{Programs, Workload};

/// Programs, and with verification an eager copy with its own buffers.
#[derive(Debug)]
pub(crate) struct Verified<const N: usize, W: Workload<N>> {
    replayed: Programs<N, W>,
    eager: Option<Programs<N, W>>,
    steps: u64,
}

impl<const N: usize, W: Workload<N>> Verified<N, W> {
    /// Wraps the programs, and their eager copy if they are verified.
    pub(crate) fn new(replayed: Programs<N, W>, eager: Option<Programs<N, W>>) -> Self {
        Self { replayed, eager, steps: 0 }
    }

    /// The programs.
    pub(crate) fn replayed(&self) -> &Programs<N, W> {
        &self.replayed
    }

    /// Returns the programs, to run a step without its eager copy.
    pub(crate) fn replayed_mut(&mut self) -> &mut Programs<N, W> {
        &mut self.replayed
    }

    /// Frees all programs and returns the buffers.
    pub(crate) fn into_workload(self) -> W {
        self.replayed.into_workload()
    }

    /// The programs and their copy.
    pub(crate) fn each(&self) -> impl Iterator<Item = &Programs<N, W>> {
        std::iter::once(&self.replayed).chain(&self.eager)
    }

    /// Returns the number of steps that were verified bitwise against an eager step.
    pub(crate) fn steps(&self) -> u64 {
        self.steps
    }

    /// Runs a step and verifies it.
    ///
    /// # Errors
    /// As [`Programs::run`] and [`Verified::verify`].
    pub(crate) fn run(&mut self, stream: &Stream, step: W::Step<'_>) -> Result<()> {
        self.replayed.run(stream, step)?;
        self.verify(stream, step)
    }

    /// Runs the eager copy of the last step and compares all results. Does nothing without a copy.
    ///
    /// # Errors
    /// [`Error::NotBitEqual`] with the first element that differs, or if the device fails.
    pub(crate) fn verify(&mut self, stream: &Stream, step: W::Step<'_>) -> Result<()> {
        let Self { replayed, eager: Some(eager), steps } = self else { return Ok(()) };
        eager.run(stream, step)?;
        let strategy = replayed.report().map_or(Strategy::Eager, |report| report.strategy);
        let compared = Compared { step: W::number(step), strategy };
        let eager = eager.workload().results(stream, step);
        for (left, right) in replayed.workload().results(stream, step).zip(eager) {
            let ((name, left), (_, right)) = (left?, right?);
            compared.require(&name, &left, &right)?;
        }
        *steps += 1;
        Ok(())
    }
}

/// A step that is compared with an eager one.
#[derive(Clone, Copy, Debug)]
struct Compared {
    /// The training step, or the position in a text.
    step: u32,
    /// The strategy of the replayed step.
    strategy: Strategy,
}

impl Compared {
    /// Fails unless both have the same bits.
    fn require(self, tensor: &str, replayed: &[f32], eager: &[f32]) -> Result<()> {
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
