//! RMSNorm, its backward pass, and column sums.
//!
//! Inputs are `[rows, width]` in f32, gains `[width]` in f32; results are f32, bf16 or both. Rows
//! may have any width and alignment. Aligned rows of whole vec4s are faster and have the same bits.
//!
//! **Errors.** A launch fails if a length does not match, if there are 2³¹ rows or more, or if eps
//! is negative or not finite.
//!
//! **Determinism.** A thread adds its elements in ascending order, and a block reduction of fixed
//! shape adds the threads. The gradient of gamma is summed over fixed groups of consecutive rows,
//! then over the groups.
//!
//! Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", arXiv 1910.07467.

mod column_sum;
mod rms_norm;
mod rms_norm_backward;
mod split;

pub use column_sum::{COLUMN_SUM, ColumnSum};
pub use rms_norm::{RMS_NORM, ResidualAdd, RmsNorm};
pub use rms_norm_backward::{RMS_NORM_BACKWARD, RMS_NORM_GAMMA_REDUCE};
pub use rms_norm_backward::{RmsNormBackward, RmsNormGammaReduce};
pub use split::{SPLIT_RMS_NORM, SPLIT_RMS_NORM_BACKWARD, SplitRmsNorm, SplitRmsNormBackward};

use crate::Kernel;

/// References in f64.
pub mod reference {
    pub mod column_sum;
    pub mod rms_norm;
}

/// The kernels of this family.
pub(crate) static KERNELS: &[&Kernel] = &[
    &COLUMN_SUM,
    &RMS_NORM,
    &RMS_NORM_BACKWARD,
    &RMS_NORM_GAMMA_REDUCE,
    &SPLIT_RMS_NORM,
    &SPLIT_RMS_NORM_BACKWARD,
];
