//! SwiGLU: `out = silu(gate) · up`, from f32, or from bf16 (`swiglu_bf16`).
//!
//! Grid: one thread for each four neighbouring elements.
//! Deterministic: every element is computed by one thread from one place of the inputs.

use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::{ModuleBuilder, Value};

use crate::primitives::sigmoid::silu;
use crate::primitives::{dtype::DType, vec4::elementwise_from};

/// The image for `target`.
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
