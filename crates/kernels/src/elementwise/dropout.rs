//! Dropout, whose random numbers are a function of seed, step, stream and place.

use crate::checks::Check;
use crate::geometry::streaming;
use crate::launch::{Access, BufferArgument};
use crate::params::{f32, pointer, u32};
use crate::{Argument, Kernel, KernelError, Launch, Problem, View};

/// Kernel of [`Dropout`].
pub static DROPOUT: Kernel = Kernel {
    name: "dropout",
    image: "dropout",
    parameters: &[
        pointer("x"),
        pointer("out"),
        pointer("step"),
        u32("n"),
        u32("threshold"),
        f32("scale"),
        u32("stream"),
        u32("seed_low"),
        u32("seed_high"),
        u32("accumulate"),
    ],
    entries: &["dropout"],
    dispatch: |problem, _| streaming("dropout", problem),
};

/// `out (+)= x / (1 − p)` where the element is kept, and 0 where it is left out, whatever x is.
///
/// The backward pass is the same launch over gradients: the same seed, step and stream leave out
/// the same elements. Each is left out with the probability p rounded to a multiple of 2⁻³², by a
/// word of Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
#[derive(Clone, Copy, Debug)]
pub struct Dropout<B> {
    /// `[n]`, read.
    pub x: View<B, f32>,
    /// `[n]`, written, or added to where `accumulate` is set; it may be x.
    pub out: View<B, f32>,
    /// `[1]`, read: the step, so that each draws anew.
    pub step: View<B, u32>,
    /// The probability p of being left out, at least 0 and below 1.
    pub probability: f32,
    /// The seed of the run.
    pub seed: u64,
    /// What tells places of a step apart.
    pub stream: u32,
    /// Whether `out` is added to.
    pub accumulate: bool,
}

impl<B: Copy> Dropout<B> {
    /// The launch.
    pub fn launch(&self) -> Result<Launch<B>, KernelError> {
        let Self { x, out, step, probability, seed, stream, accumulate } = *self;
        let check = Check(DROPOUT.name);
        let n = check.size("the number of elements", x.len())?;
        check.length("out", out, x.len())?;
        check.length("step", step, 1)?;
        let holds = (0.0..1.0).contains(&probability);
        check.constant("probability", probability, (holds, "at least 0 and below 1"))?;
        // Exact: a float has fewer digits than a double, and the product is a shift.
        let threshold = (f64::from(probability) * 4_294_967_296.0).round() as u32;
        let access = if accumulate { Access::ReadWrite } else { Access::Write };
        let arguments = vec![
            Argument::read(x),
            Argument::Buffer(BufferArgument::new(out, access)),
            Argument::read(step),
            Argument::U32(n),
            Argument::U32(threshold),
            Argument::f32((1.0 / (1.0 - f64::from(probability))) as f32),
            Argument::U32(stream),
            Argument::U32(seed as u32),
            Argument::U32((seed >> 32) as u32),
            Argument::U32(u32::from(accumulate)),
        ];
        Ok(Launch { kernel: &DROPOUT, problem: Problem::from([n]), arguments })
    }
}
