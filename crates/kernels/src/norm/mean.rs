//! The mean over what counts, for the loss of a batch.

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
    dispatch: |_, _| linear("mean", 1, THREADS),
};

/// `out = Σ x ÷ max(counted, 1)`, summed in f64 by one block in a fixed order: the mean of the
/// values that count, where those that do not are 0, and 0 where nothing counts.
#[derive(Clone, Copy, Debug)]
pub struct Mean<B> {
    /// `[n]`, read.
    pub x: View<B, f32>,
    /// `[1]`, read: how many values count. It need not be the length of `x`.
    pub counted: View<B, u32>,
    /// `[1]`, written.
    pub out: View<B, f32>,
}

impl<B: Copy> Mean<B> {
    /// The launch.
    pub fn launch(&self) -> Result<Launch<B>, KernelError> {
        let check = Check(MEAN.name);
        // The kernel counts in steps of the block, and must not wrap around.
        let n = check.at_most("n", self.x.len(), (u32::MAX - THREADS) as usize)?;
        check.length("counted", self.counted, 1)?;
        check.length("out", self.out, 1)?;
        let (x, counted) = (Argument::read(self.x), Argument::read(self.counted));
        let arguments = vec![x, counted, Argument::write(self.out), Argument::U32(n)];
        Ok(Launch { kernel: &MEAN, problem: Problem::from([n]), arguments })
    }
}
