//! Sampling of the next token, and the marks of seen tokens.

pub mod reference;
mod sample;

pub use sample::{MARK_TOKENS, SAMPLE_ADJUST, SAMPLE_DRAW, SAMPLE_PICK, SAMPLE_THRESHOLD};
pub use sample::{MarkTokens, Sample, SamplingParameters, sample_chunks};

use crate::Kernel;

/// The kernels of this family.
pub(crate) static KERNELS: &[&Kernel] =
    &[&MARK_TOKENS, &SAMPLE_ADJUST, &SAMPLE_DRAW, &SAMPLE_PICK, &SAMPLE_THRESHOLD];
