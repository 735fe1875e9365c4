//! The mean loss of a batch over the tokens that are not ignored.

use retrograph_kernel_abi::loss as abi;

use crate::checks::Check;
use crate::geometry::linear;
use crate::launch::{ArgumentTypes, Pointer};
use crate::{Kernel, KernelError, Launch, Problem, View};

/// Kernel of [`Mean`].
pub static MEAN: Kernel = Kernel::new("mean", &abi::MEAN, |problem, _| {
    problem.items().map(|_| linear(abi::MEAN.entry(), 1, abi::MEAN_THREADS))
});

/// `out = Σ x ÷ max(counted, 1)`: the mean over the values that are not ignored. Ignored values
/// must be 0.
///
/// Deterministic: one block sums in f64 in a fixed order.
#[derive(Clone, Copy, Debug)]
pub struct Mean<B> {
    /// `[n]`, read.
    pub x: View<B, f32>,
    /// `[1]`, read: the number of values that are not ignored.
    pub counted: View<B, u32>,
    /// `[1]`, written.
    pub out: View<B, f32>,
}

impl<B: Copy> Mean<B> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If a length does not match, or there are too many values.
    pub fn launch(&self) -> Result<Launch<B>, KernelError> {
        let check = Check(MEAN.name);
        // The kernel advances by the block size, and the index must not wrap around.
        let n = check.at_most("n", self.x.len(), (u32::MAX - abi::MEAN_THREADS) as usize)?;
        check.length("counted", self.counted, 1)?;
        check.length("out", self.out, 1)?;
        let parameters = abi::MeanParameters::<ArgumentTypes<B>> {
            x: Pointer::read(self.x),
            counted: Pointer::read(self.counted),
            out: Pointer::write(self.out),
            n,
        };
        let arguments = parameters.into_arguments();
        Ok(Launch { kernel: &MEAN, problem: Problem::Items(n), arguments })
    }
}
