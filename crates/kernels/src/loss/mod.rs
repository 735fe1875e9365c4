//! Cross-entropy loss with its gradient, the order of its rows, the mean over the tokens of a
//! batch, and the DPO loss of pairs of sequences.
//!
//! Logits are `[rows, vocab]` in f32, targets `[rows]` in u32, losses `[rows]` in f32. The gradient
//! is written as f32, bf16 or both, in place of the logits, in f16 terms, or not at all.
//!
//! **Errors.** A launch fails if a length does not match or if rows have no logits. Targets are
//! checked on the device: one outside the vocabulary gives NaN, except for [`IGNORED_TARGET`].
//!
//! **Determinism.** Threads add in ascending order, and a reduction of fixed shape adds the
//! threads.
//!
//! Formula: `torch.nn.functional.cross_entropy`. Sum of exponentials: Milakov and Gimelshein,
//! "Online normalizer calculation for softmax", arXiv 1805.02867.

mod cross_entropy;
mod mean;
mod preference;
pub mod reference;
mod row_order;

pub use cross_entropy::{
    CROSS_ENTROPY, CROSS_ENTROPY_BF16, CROSS_ENTROPY_SOFTCAP, CROSS_ENTROPY_SOFTCAP_BF16,
    CrossEntropy, GradLogits, IGNORED_TARGET, SPLIT_CROSS_ENTROPY,
};
pub use mean::{MEAN, Mean};
pub use preference::{LOG_RATIOS, LogRatios, PREFERENCE, Preference, SCALE_ROWS, ScaleRows};
pub use row_order::{GATHER_ROWS, ReorderRows, SCATTER_ROWS};

use crate::Kernel;

/// The kernels of this family.
pub(crate) static KERNELS: &[&Kernel] = &[
    &CROSS_ENTROPY,
    &CROSS_ENTROPY_BF16,
    &CROSS_ENTROPY_SOFTCAP,
    &CROSS_ENTROPY_SOFTCAP_BF16,
    &GATHER_ROWS,
    &MEAN,
    &LOG_RATIOS,
    &PREFERENCE,
    &SCALE_ROWS,
    &SCATTER_ROWS,
    &SPLIT_CROSS_ENTROPY,
];
