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
mod problem;
pub mod reference;
mod split_k;

pub use config::GemmConfig;
pub use kernels::{DGRAD, DGRAD_BF16, DGRAD_BF16_BF16, DGRAD_BF16_NF4, DGRAD_MULTISTAGE};
pub use kernels::{DGRAD_MULTISTAGE_NF4, DGRAD_NF4, WGRAD, WGRAD_BF16, WGRAD_MULTISTAGE};
pub use kernels::{FPROP, FPROP_BF16, FPROP_BF16_BF16, FPROP_BF16_NF4, FPROP_MULTISTAGE};
pub use kernels::{FPROP_MULTISTAGE_NF4, FPROP_NF4};
pub use linear::{Dgrad, Fprop, GemmShape, Wgrad};
pub use problem::GemmProblem;
pub use split_k::{DgradSplitK, FpropSplitK, SPLIT_K_SUM, SplitKSum};

use crate::Kernel;

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
