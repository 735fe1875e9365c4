//! LoRA updates of linear layers.
//!
//! ```text
//! y += s·t·Bᵀ       with t = x·Aᵀ
//! dB = s·dyᵀ·t      dt = s·dy·B      dA = dtᵀ·x      dx += dt·A
//! ```
//!
//! Dropout applies to the x of the update, and to its dt·A.
//!
//! In bf16, updates of many rows are matrix products ([`products`]), and the product with the
//! weight adds `t·Bᵀ` and `dt·A` as an extension of its contraction. Otherwise, ranks up to
//! [`LORA_MAX_RANK`](retrograph_kernels::ops::LORA_MAX_RANK) have dedicated f32 kernels, which read
//! the long operand once for all updates that share it, and larger ranks are f32 products.
//! [`super::gemv`] computes updates of one row.

mod backward;
mod forward;
mod products;
mod update;

pub(super) use backward::{backward, fused_grad_t};
pub(super) use forward::{Down, down, up};
pub(super) use update::{Lora, LoraBackward, Method, Saved, SavedIn};
