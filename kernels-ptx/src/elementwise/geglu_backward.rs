//! Backward pass of GeGLU: `grad_gate = grad_out · (up · gelu'(gate))` and `grad_up = grad_out ·
//! gelu(gate)`. All inputs are f32, or all bf16 in `geglu_backward_bf16`.
//!
//! Grid: one thread for every eight elements.
//! Deterministic: one thread computes each element from one element of each input.

use retrograph_kernel_abi::DType;
use retrograph_kernel_abi::elementwise::GEGLU_BACKWARD;
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::ModuleBuilder;

use super::gated::backward;
use super::kernel::elementwise;
use crate::primitives::gelu::{geglu_gradients, geglu_gradients_bf16};

/// Builds the image.
pub(crate) fn module(target: SmTarget) -> Module {
    ModuleBuilder::new(target)
        .entry(elementwise(
            target,
            GEGLU_BACKWARD.entries[0],
            DType::F32,
            backward,
            |[gate, up, grad_out]| geglu_gradients([gate, up], grad_out),
        ))
        .entry(elementwise(
            target,
            GEGLU_BACKWARD.entries[1],
            DType::Bf16,
            backward,
            |[gate, up, grad_out]| geglu_gradients_bf16([gate, up], grad_out),
        ))
        .build()
}
