//! Backward pass of SwiGLU: `grad_gate = grad_out · (up · silu'(gate))` and `grad_up = grad_out ·
//! silu(gate)`. All inputs are f32, or all bf16 in `swiglu_backward_bf16`.
//!
//! Grid: one thread per vec4.
//! Deterministic: one thread computes each element from one element of each input.

use retrograph_kernel_abi::DType;
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::{ModuleBuilder, Value};

use crate::primitives::sigmoid::sigmoids;
use crate::primitives::vec4::elementwise_from;

/// Builds the image.
pub(crate) fn module(target: SmTarget) -> Module {
    let names = (["gate", "up", "grad_out"], ["grad_gate", "grad_up"]);
    ModuleBuilder::new(target)
        .entry(elementwise_from(DType::F32, (target, "swiglu_backward"), names, formula))
        .entry(elementwise_from(DType::Bf16, (target, "swiglu_backward_bf16"), names, formula))
        .build()
}

fn formula<'k>([gate, up, grad_out]: [Value<'k, f32>; 3]) -> [Value<'k, f32>; 2] {
    let [sigmoid, rest] = sigmoids(gate);
    let derivative = sigmoid * gate.fma(rest, 1.0);
    [grad_out * (up * derivative), grad_out * (gate * sigmoid)]
}
