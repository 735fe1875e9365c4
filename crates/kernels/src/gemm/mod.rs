//! Matrix products of linear layers, and split-K.

pub(crate) mod config;
pub(crate) mod heuristic;
pub(crate) mod launch;
pub(crate) mod linear;
pub mod reference;
mod split_k;

pub use linear::{DGRAD, DGRAD_BF16, DGRAD_BF16_BF16, DGRAD_BF16_NF4, DGRAD_NF4, Dgrad};
pub use linear::{DGRAD_STREAM, DGRAD_STREAM_NF4, Fprop, GemmShape, WGRAD, WGRAD_BF16};
pub use linear::{FPROP, FPROP_BF16, FPROP_BF16_BF16, FPROP_BF16_NF4, FPROP_NF4, FPROP_STREAM};
pub use linear::{FPROP_STREAM_NF4, WGRAD_STREAM, Wgrad};
pub use split_k::{DgradParts, FpropParts, Manner, PARTS_SUM, PartsSum};

use crate::Kernel;

/// The kernels of this family.
pub(crate) static KERNELS: &[&Kernel] = &[
    &DGRAD,
    &DGRAD_BF16,
    &DGRAD_BF16_BF16,
    &DGRAD_BF16_NF4,
    &DGRAD_NF4,
    &FPROP,
    &FPROP_BF16,
    &FPROP_BF16_BF16,
    &FPROP_STREAM,
    &FPROP_STREAM_NF4,
    &DGRAD_STREAM,
    &DGRAD_STREAM_NF4,
    &FPROP_BF16_NF4,
    &FPROP_NF4,
    &WGRAD,
    &WGRAD_BF16,
    &WGRAD_STREAM,
    &PARTS_SUM,
];
