//! LoRA updates of linear layers.
//!
//! ```text
//! y += s·t·Bᵀ       with t = x·Aᵀ
//! dB = s·dyᵀ·t      dt = s·dy·B      dA = dtᵀ·x      dx += dt·A
//! ```
//!
//! Dropout applies to the x of the update, and to its dt·A.
//!
//! Ranks up to [`LORA_MAX_RANK`] have kernels of their own, which read the long operand once for
//! all updates that share it. Larger ranks are ordinary matrix products ([`large_rank`]). Updates
//! of one row are computed by [`super::gemv`].

mod backward;
mod forward;
mod large_rank;
mod update;

pub(super) use backward::backward;
pub(super) use forward::{Down, down, up};
pub(super) use update::{Lora, LoraBackward, Saved};
