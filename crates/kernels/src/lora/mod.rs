//! LoRA: the products of low-rank adapters, `y += s·(x·Aᵀ)·Bᵀ`, and their gradients, all in f32.
//!
//! ```text
//! t  = x·Aᵀ         LoraShrink, A         dt = s·dy·B      LoraShrink, B
//! y += s·t·Bᵀ       LoraExpand, B         dx += Σ dt·A     LoraExpand, A
//! dA = dtᵀ·x        LoraGrad,   A         dB = s·dyᵀ·t     LoraGrad,   B
//! ```
//!
//! A launch has one to three adapters of one rank that share the wide operand: x, dx, dy or y. Its
//! contraction is split to give enough blocks. The number of splits ([`LoraShape::shrink_splits`],
//! [`LoraShape::grad_splits`]) and the bits of the result depend only on the sizes.
//!
//! Everything is f32. Any rank works, but above [`LORA_MAX_RANK`] the tiled products
//! ([`Fprop`](crate::gemm::Fprop) and so on) are faster. In bf16 with many rows,
//! [`FpropSum`](crate::gemm::FpropSum) and [`DgradSum`](crate::gemm::DgradSum) are faster: they add
//! the update inside the product with the weight.
//!
//! A is `[rank, inputs]`, B `[outputs, rank]`, t and dt `[rows, rank]`, x and dx `[rows, inputs]`,
//! y and dy `[rows, outputs]`.
//!
//! **Errors.** A launch fails if a length does not match, if there are no adapters or more than
//! three, or if the number of splits is 0.
//!
//! Source: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", arXiv 2106.09685.

mod dora;
mod expand;
mod grad;
mod shape;
mod shrink;

pub use dora::{
    DORA_NORMS, DORA_SCALE, DORA_SCALE_BACKWARD, DoraNorms, DoraScale, DoraScaleBackward,
    DoraScaleShape, reference,
};
pub use expand::{LORA_EXPAND, LoraExpand, LoraExpandAdapter};
pub use grad::{LORA_GRAD, LoraGrad, LoraGradAdapter};
pub use retrograph_kernel_abi::lora::LoraMatrix;
pub use shape::{LORA_MAX_ADAPTERS, LORA_MAX_RANK, LoraShape};
pub use shrink::{LORA_SHRINK, LoraShrink, LoraShrinkAdapter};

use crate::Kernel;

/// The kernels of this family.
pub(crate) static KERNELS: &[&Kernel] =
    &[&DORA_NORMS, &DORA_SCALE, &DORA_SCALE_BACKWARD, &LORA_EXPAND, &LORA_GRAD, &LORA_SHRINK];
