//! Sampling of the next token of each sequence, and marks of the tokens seen so far.
//!
//! Logits are `[sequences, vocab]` in f32; tokens and marks are u32. Kernels read
//! [`SamplingParameters`] from device memory, so a graph can be replayed with new ones. The order
//! is repetition penalty, temperature, top-k, top-p, as in Hugging Face Transformers.
//!
//! **Errors.** A launch fails if a length does not match, if the vocabulary is empty or has more
//! than 2³⁰ tokens, or if there are more than 65 535 sequences. If the greatest logit of a sequence
//! is not finite, its result is token 0 with status 1.
//!
//! **Determinism.** Sequences do not affect each other. The same seed and draw give the same token
//! on every device: weights are added as integers, and random numbers come from Philox 4x32-10
//! (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) by the Gumbel-max trick.

pub mod reference;
mod sample;

pub use sample::{MARK_SEEN_TOKENS, SAMPLE_ADJUST, SAMPLE_DRAW, SAMPLE_PICK, SAMPLE_THRESHOLD};
pub use sample::{MarkSeenTokens, Sample, SamplingParameters, sample_chunks};

use crate::Kernel;

/// The kernels of this family.
pub(crate) static KERNELS: &[&Kernel] =
    &[&MARK_SEEN_TOKENS, &SAMPLE_ADJUST, &SAMPLE_DRAW, &SAMPLE_PICK, &SAMPLE_THRESHOLD];
