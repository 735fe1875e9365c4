//! SwiGLU: `out = silu(gate) · up`. Inputs are f32, or bf16 in `swiglu_bf16`.
//!
//! Grid: one thread per vec4.
//! Deterministic: one thread computes each element from one element of each input.

use retrograph_kernel_abi::DType;
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::{ModuleBuilder, Value};

use crate::primitives::sigmoid::silu;
use crate::primitives::vec4::elementwise_from;

/// Builds the image.
pub(crate) fn module(target: SmTarget) -> Module {
    let names = (["gate", "up"], ["out"]);
    ModuleBuilder::new(target)
        .entry(elementwise_from(DType::F32, (target, "swiglu"), names, formula))
        .entry(elementwise_from(DType::Bf16, (target, "swiglu_bf16"), names, formula))
        .build()
}

fn formula<'k>([gate, up]: [Value<'k, f32>; 2]) -> [Value<'k, f32>; 1] {
    [silu(gate) * up]
}
