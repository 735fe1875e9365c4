//! Dropout with counter-based random numbers: a function of seed, step, layer and element.

use retrograph_kernel_abi::elementwise as abi;

use crate::checks::Check;
use crate::geometry::per_vec4;
use crate::launch::{ArgumentTypes, Pointer};
use crate::{Kernel, KernelError, Launch, Problem, View};

/// Kernel of [`Dropout`].
pub static DROPOUT: Kernel = Kernel::new("dropout", &abi::DROPOUT, |problem, _| {
    problem.items().map(|count| per_vec4(abi::DROPOUT.entry(), count))
});

/// `out (+)= x / (1 − p)` for kept elements and 0 for dropped ones, even if x is not finite.
///
/// The backward pass is the same launch over gradients: the same seed, step, `sequence` and
/// `first_group` drop the same elements. A launch over part of a tensor drops the same elements as
/// a launch over the whole tensor.
///
/// One word of Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011)
/// drops each element with probability p, rounded to a multiple of 2⁻³².
#[derive(Clone, Copy, Debug)]
pub struct Dropout<B> {
    /// `[n]`, read.
    pub x: View<B, f32>,
    /// `[n]`, written, or added to; it may be x.
    pub out: View<B, f32>,
    /// `[1]`, read: the step. Each step drops other elements.
    pub step: View<B, u32>,
    /// The probability p of dropping an element, at least 0 and below 1.
    pub probability: f32,
    /// The seed of the run.
    pub seed: u64,
    /// The random sequence of this layer, distinct for each layer of a step.
    pub sequence: u32,
    /// The index in the sequence of the first group of four elements. It is 0 for a whole tensor.
    pub first_group: u32,
    /// Whether `out` is added to instead of overwritten.
    pub accumulate: bool,
}

impl<B: Copy> Dropout<B> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If a length does not match, or the probability is not at least 0 and below 1.
    pub fn launch(&self) -> Result<Launch<B>, KernelError> {
        let Self { x, out, step, probability, seed, sequence, first_group, accumulate } = *self;
        let check = Check(DROPOUT.name);
        let n = check.size("the number of elements", x.len())?;
        check.length("out", out, x.len())?;
        check.length("step", step, 1)?;
        let holds = (0.0..1.0).contains(&probability);
        check.constant("probability", probability, holds, "at least 0 and below 1")?;
        // Exact: f64 holds every f32, and the factor is a power of two.
        let threshold = (f64::from(probability) * 4_294_967_296.0).round() as u32;
        let parameters = abi::DropoutParameters::<ArgumentTypes<B>> {
            x: Pointer::read(x),
            out: Pointer::output(out, accumulate),
            step: Pointer::read(step),
            n,
            threshold,
            scale: (1.0 / (1.0 - f64::from(probability))) as f32,
            sequence,
            first_group,
            seed_low: seed as u32,
            seed_high: (seed >> 32) as u32,
            accumulate,
        };
        let arguments = parameters.into_arguments();
        Ok(Launch { kernel: &DROPOUT, problem: Problem::Items(n), arguments })
    }
}
