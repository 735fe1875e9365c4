//! The mean loss of a batch over the tokens that are not ignored.

use crate::checks::Check;
use crate::geometry::linear;
use crate::params::{pointer, u32};
use crate::{Argument, Kernel, KernelError, Launch, Problem, View};

/// Threads of the one block.
const THREADS: u32 = 256;

/// Kernel of [`Mean`].
pub static MEAN: Kernel = Kernel {
    name: "mean",
    image: "mean",
    parameters: &[pointer("x"), pointer("counted"), pointer("out"), u32("n")],
    entries: &["mean"],
    dispatch: |problem, _| problem.items().map(|_| linear("mean", 1, THREADS)),
};

/// `out = Σ x ÷ max(counted, 1)`: the mean over the values that are not ignored; ignored values are
/// 0.
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
    pub fn launch(&self) -> Result<Launch<B>, KernelError> {
        let check = Check(MEAN.name);
        // The kernel counts in steps of the block, which must not wrap around.
        let n = check.at_most("n", self.x.len(), (u32::MAX - THREADS) as usize)?;
        check.length("counted", self.counted, 1)?;
        check.length("out", self.out, 1)?;
        let (x, counted) = (Argument::read(self.x), Argument::read(self.counted));
        let arguments = vec![x, counted, Argument::write(self.out), Argument::U32(n)];
        Ok(Launch { kernel: &MEAN, problem: Problem::Items(n), arguments })
    }
}
