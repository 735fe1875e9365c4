//! Matrix products of linear layers: `y = x·wᵀ`, its two gradients, and split-K.
//!
//! Operands are f32, bf16, NF4 or split into two f16 terms; results are f32 or bf16; accumulators
//! are always f32. `retrograph-kernel-abi` declares parameters, flags, tiles and entry points;
//! [`GemmConfig`], sizes and dtypes select among them.
//!
//! x is `[rows, inputs]`, w `[outputs, inputs]` and y `[rows, outputs]`, all row-major. Each launch
//! documents the combinations of types that it supports.
//!
//! **Errors.** A launch fails if a length does not match the shape, if a matrix has 2³² elements or
//! more, or if no kernel multiplies the given types. Rows of bf16 operands must have a multiple of
//! 8 elements and start at multiples of 16 bytes; rows of NF4 operands must have a multiple of 8
//! elements.
//!
//! **Determinism.** The order of additions depends on the tile and on split-K, never on timing.
//! Both follow from sizes, dtypes, alignment and the number of concurrent launches
//! ([`Launch::concurrent`](crate::Launch::concurrent)); the tile also follows from the SM target.
//! On one target, all tiles with the same arithmetic (FMA, `tf32x3`, bf16 or split f16) and without
//! sliced-K or split-K in a cluster add the contraction in the same order. The others have orders
//! of their own.
//!
//! f32 products on tensor cores split each operand into two tf32 values (Ootomo and Yokota, arXiv
//! 2203.03341). Products of matrices that are already split ([`SplitMatrix`]) take half the time;
//! on SM targets without `wgmma` they use f32 fused multiply-adds.

mod config;
mod glu;
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
mod tensor_map;
mod wgrad_squares;

pub use config::GemmConfig;
pub use glu::{GluDgrad, GluFprop};
pub use heuristic::dispatch_entry;
pub use kernels::{DGRAD, DGRAD_BF16, DGRAD_BF16_BF16, DGRAD_BF16_NF4, DGRAD_MULTISTAGE};
pub use kernels::{
    DGRAD_MULTISTAGE_NF4, DGRAD_NF4, DGRAD_SPLIT, WGRAD, WGRAD_BF16, WGRAD_MULTISTAGE,
};
pub use kernels::{FPROP, FPROP_BF16, FPROP_BF16_BF16, FPROP_BF16_NF4, FPROP_MULTISTAGE};
pub use kernels::{FPROP_MULTISTAGE_NF4, FPROP_NF4, FPROP_SPLIT, QKV_ROPE_FPROP};
pub use kernels::{GEGLU_DGRAD, GEGLU_FPROP, SWIGLU_DGRAD, SWIGLU_FPROP};
pub use linear::{Dgrad, Fprop, GemmShape, Wgrad};
pub use problem::GemmProblem;
pub use product_sum::{DgradOperands, DgradSum, FpropSum};
pub use qkv_rope::{QkvRopeFprop, QkvRopeProjection};
pub use skinny::{SKINNY, SkinnyForm, SkinnyFprop, SkinnyLayer, SkinnyProblem, SkinnySwiGlu};
pub(crate) use split::SplitSizes;
pub use split::{NotInF16, SPLIT, Split, SplitMatrix, split_rows};
pub use split_k::{DgradSplitK, FpropSplitK, SPLIT_K_SUM, SplitKSum, WgradSplitK};
pub use split_swiglu::{
    SPLIT_SWIGLU, SPLIT_SWIGLU_BACKWARD, SplitGradient, SplitSwiGlu, SplitSwiGluBackward,
};
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
    &GEGLU_DGRAD,
    &GEGLU_FPROP,
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
