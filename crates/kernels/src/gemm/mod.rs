//! Matrix products of linear layers: `y = x·wᵀ`, its two gradients, and split-K.
//!
//! Operands and results are f32, bf16 or NF4; accumulators are f32 always. Parameters, flags, tiles
//! and entry points are declared in `retrograph-kernel-abi`; [`GemmConfig`], sizes and dtypes
//! choose among them. SM targets that lack a tile take one with the same order.
//!
//! x is `[rows, inputs]`, w `[outputs, inputs]` and y `[rows, outputs]`, all row-major. Each launch
//! documents which combinations of types it takes.
//!
//! **Errors.** A launch fails if a length does not match the shape, if a matrix has 2³² elements or
//! more, or if no kernel multiplies the given types. Operands in bf16 need rows of a multiple of 8
//! elements that start at multiples of 16 bytes; NF4 needs whole rows of 8.
//!
//! **Determinism.** The order of additions depends on sizes and dtypes. Products in f32 on tensor
//! cores split each factor into two of tf32 (Ootomo and Yokota, arXiv 2203.03341). Products of
//! matrices that were split before ([`SplitMatrix`]) take half of that time; they add in f32 on SM
//! targets without `wgmma`.

mod config;
pub(crate) mod heuristic;
pub(crate) mod kernels;
pub(crate) mod launch;
mod linear;
pub(crate) mod operand;
mod problem;
mod product_sum;
mod qkv_rope;
pub mod reference;
mod skinny;
mod split;
mod split_k;
mod split_swiglu;
mod swiglu;
mod tensor_map;
mod wgrad_squares;

pub use config::GemmConfig;
pub use heuristic::dispatch_entry;
pub use kernels::{DGRAD, DGRAD_BF16, DGRAD_BF16_BF16, DGRAD_BF16_NF4, DGRAD_MULTISTAGE};
pub use kernels::{
    DGRAD_MULTISTAGE_NF4, DGRAD_NF4, DGRAD_SPLIT, WGRAD, WGRAD_BF16, WGRAD_MULTISTAGE,
};
pub use kernels::{FPROP, FPROP_BF16, FPROP_BF16_BF16, FPROP_BF16_NF4, FPROP_MULTISTAGE};
pub use kernels::{FPROP_MULTISTAGE_NF4, FPROP_NF4, FPROP_SPLIT, QKV_ROPE_FPROP};
pub use kernels::{SWIGLU_DGRAD, SWIGLU_FPROP};
pub use linear::{Dgrad, Fprop, GemmShape, Wgrad};
pub use problem::GemmProblem;
pub use product_sum::{DgradFactors, DgradSum, FpropSum};
pub use qkv_rope::{QkvRopeFprop, QkvRopeProjection};
pub use skinny::{SKINNY, SkinnyFprop};
pub use split::{NotInF16, SPLIT, Split, SplitMatrix, split_rows};
pub use split_k::{DgradSplitK, FpropSplitK, SPLIT_K_SUM, SplitKSum, WgradSplitK};
pub use split_swiglu::{
    SPLIT_SWIGLU, SPLIT_SWIGLU_BACKWARD, SplitGradient, SplitSwiGlu, SplitSwiGluBackward,
};
pub use swiglu::{SwiGluDgrad, SwiGluFprop};
pub use wgrad_squares::WgradSquares;

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
    &DGRAD_SPLIT,
    &FPROP,
    &FPROP_BF16,
    &FPROP_BF16_BF16,
    &FPROP_BF16_NF4,
    &FPROP_MULTISTAGE,
    &FPROP_MULTISTAGE_NF4,
    &FPROP_NF4,
    &FPROP_SPLIT,
    &QKV_ROPE_FPROP,
    &SKINNY,
    &SPLIT,
    &SPLIT_K_SUM,
    &SPLIT_SWIGLU,
    &SPLIT_SWIGLU_BACKWARD,
    &SWIGLU_DGRAD,
    &SWIGLU_FPROP,
    &WGRAD,
    &WGRAD_BF16,
    &WGRAD_MULTISTAGE,
];
