//! Matrix products of linear layers: `y = x·wᵀ`, its two gradients, and split-K.
//!
//! Operands and results are f32, bf16 or NF4; accumulators are f32 always. Parameters, flags, tiles
//! and entry points are declared in `retrograph-kernel-abi`; [`GemmConfig`] and the sizes choose
//! among them, the same on every device.

mod config;
pub(crate) mod heuristic;
pub(crate) mod kernels;
pub(crate) mod launch;
mod linear;
pub mod reference;
mod split_k;

pub use config::GemmConfig;
pub use kernels::{DGRAD, DGRAD_BF16, DGRAD_BF16_BF16, DGRAD_BF16_NF4, DGRAD_MULTISTAGE};
pub use kernels::{DGRAD_MULTISTAGE_NF4, DGRAD_NF4, WGRAD, WGRAD_BF16, WGRAD_MULTISTAGE};
pub use kernels::{FPROP, FPROP_BF16, FPROP_BF16_BF16, FPROP_BF16_NF4, FPROP_MULTISTAGE};
pub use kernels::{FPROP_MULTISTAGE_NF4, FPROP_NF4};
pub use linear::{Dgrad, Fprop, GemmShape, Wgrad};
pub use split_k::{DgradSplitK, FpropSplitK, SPLIT_K_SUM, SplitKSum};

use crate::Kernel;

/// The sizes from which tile and grid of a matrix product follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GemmProblem {
    /// Rows of the result.
    pub m: u32,
    /// Columns of the result.
    pub n: u32,
    /// Length of the contraction.
    pub k: u32,
    /// Number of products: batch × heads, or splits.
    pub planes: u32,
    /// Whether rows of both operands can be copied in vectors of 16 bytes.
    pub vectorized: bool,
    /// Number of launches of the same sizes that run concurrently with this one; see
    /// [`Launch::concurrent`](crate::Launch::concurrent).
    pub concurrent: u32,
}

/// The kernels of this family.
pub(crate) static KERNELS: &[&Kernel] = &[
    &DGRAD,
    &DGRAD_BF16,
    &DGRAD_BF16_BF16,
    &DGRAD_BF16_NF4,
    &DGRAD_MULTISTAGE,
    &DGRAD_MULTISTAGE_NF4,
    &DGRAD_NF4,
    &FPROP,
    &FPROP_BF16,
    &FPROP_BF16_BF16,
    &FPROP_BF16_NF4,
    &FPROP_MULTISTAGE,
    &FPROP_MULTISTAGE_NF4,
    &FPROP_NF4,
    &SPLIT_K_SUM,
    &WGRAD,
    &WGRAD_BF16,
    &WGRAD_MULTISTAGE,
];
