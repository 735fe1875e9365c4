//! Elementwise kernels: activations, soft-capping, residual addition, rounding to bf16, dropout.

pub(crate) mod add;
pub(crate) mod cast;
pub(crate) mod dropout;
mod gated;
pub(crate) mod geglu;
pub(crate) mod geglu_backward;
mod kernel;
pub(crate) mod silu;
pub(crate) mod silu_backward;
pub(crate) mod softcap;
pub(crate) mod softcap_backward;
pub(crate) mod swiglu;
pub(crate) mod swiglu_backward;
