//! SwiGLU: `out = silu(gate) · up`. Inputs are f32, or bf16 in `swiglu_bf16`.
//!
//! Grid: one thread for every eight elements.
//! Deterministic: one thread computes each element from one element of each input.

use retrograph_kernel_abi::DType;
use retrograph_kernel_abi::elementwise::SWIGLU;
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::ModuleBuilder;

use super::gated::forward;
use super::kernel::elementwise;
use crate::primitives::sigmoid::{swiglu, swiglu_bf16};

/// Builds the image.
pub(crate) fn module(target: SmTarget) -> Module {
    ModuleBuilder::new(target)
        .entry(elementwise(target, SWIGLU.entries[0], DType::F32, forward, |[gate, up]| {
            [swiglu(gate, up)]
        }))
        .entry(elementwise(target, SWIGLU.entries[1], DType::Bf16, forward, |[gate, up]| {
            [swiglu_bf16(gate, up)]
        }))
        .build()
}
