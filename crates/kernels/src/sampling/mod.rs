//! Sampling of the next token, and marks of the tokens seen so far.
//!
//! Logits are `[vocab]` in f32; tokens and marks are u32. Kernels read [`SamplingParameters`] from
//! device memory, so a graph can be replayed with new ones. The order is repetition penalty,
//! temperature, top-k, top-p, as in Hugging Face Transformers.
//!
//! **Errors.** A launch fails if a length does not match, or if the vocabulary is empty or has more
//! than 2³⁰ tokens. If the greatest logit is not finite, the result is token 0 with status 1.
//!
//! **Determinism.** The same seed and draw give the same token on every device: weights are added
//! as integers, and random numbers come from Philox 4x32-10 (Salmon et al., "Parallel random
//! numbers: as easy as 1, 2, 3", 2011) by the Gumbel-max trick.

pub mod reference;
mod sample;

pub use sample::{MARK_SEEN_TOKENS, SAMPLE_ADJUST, SAMPLE_DRAW, SAMPLE_PICK, SAMPLE_THRESHOLD};
pub use sample::{MarkSeenTokens, Sample, SamplingParameters, sample_chunks};

use crate::Kernel;

/// The kernels of this family.
pub(crate) static KERNELS: &[&Kernel] =
    &[&MARK_SEEN_TOKENS, &SAMPLE_ADJUST, &SAMPLE_DRAW, &SAMPLE_PICK, &SAMPLE_THRESHOLD];
