//! Backward pass of SwiGLU: `grad_gate = grad_out · (up · silu'(gate))` and `grad_up = grad_out ·
//! silu(gate)`. All inputs are f32, or all bf16 in `swiglu_backward_bf16`.
//!
//! Grid: one thread for every eight elements.
//! Deterministic: one thread computes each element from one element of each input.

use retrograph_kernel_abi::DType;
use retrograph_kernel_abi::elementwise::SWIGLU_BACKWARD;
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::ModuleBuilder;

use super::gated::backward;
use super::kernel::elementwise;
use crate::primitives::sigmoid::{swiglu_gradients, swiglu_gradients_bf16};

/// Builds the image.
pub(crate) fn module(target: SmTarget) -> Module {
    ModuleBuilder::new(target)
        .entry(elementwise(
            target,
            SWIGLU_BACKWARD.entries[0],
            DType::F32,
            backward,
            |[gate, up, grad_out]| swiglu_gradients([gate, up], grad_out),
        ))
        .entry(elementwise(
            target,
            SWIGLU_BACKWARD.entries[1],
            DType::Bf16,
            backward,
            |[gate, up, grad_out]| swiglu_gradients_bf16([gate, up], grad_out),
        ))
        .build()
}
