//! GeGLU: `out = gelu(gate) · up`, by the tanh approximation. Inputs are f32, or bf16 in
//! `geglu_bf16`.
//!
//! Grid: one thread for every eight elements.
//! Deterministic: one thread computes each element from one element of each input.

use retrograph_kernel_abi::DType;
use retrograph_kernel_abi::elementwise::GEGLU;
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::ModuleBuilder;

use super::gated::forward;
use super::kernel::elementwise;
use crate::primitives::gelu::{geglu, geglu_bf16};

/// Builds the image.
pub(crate) fn module(target: SmTarget) -> Module {
    ModuleBuilder::new(target)
        .entry(elementwise(target, GEGLU.entries[0], DType::F32, forward, |[gate, up]| {
            [geglu(gate, up)]
        }))
        .entry(elementwise(target, GEGLU.entries[1], DType::Bf16, forward, |[gate, up]| {
            [geglu_bf16(gate, up)]
        }))
        .build()
}
