//! Backward pass of SwiGLU: `grad_gate = grad_out · (up · silu'(gate))` and
//! `grad_up = grad_out · silu(gate)`.
//!
//! Grid: one thread for each four neighbouring elements.
//! Deterministic: every element is computed by one thread from one place of the inputs.

use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::ModuleBuilder;

use crate::quad::streaming;
use crate::sigmoid::sigmoids;

/// The image for `target`.
pub(crate) fn module(target: SmTarget) -> Module {
    let names = (["gate", "up", "grad_out"], ["grad_gate", "grad_up"]);
    let entry = streaming((target, "swiglu_backward"), names, |[gate, up, grad_out]| {
        let [sigmoid, rest] = sigmoids(gate);
        let derivative = sigmoid * gate.fma(rest, 1.0);
        [grad_out * (up * derivative), grad_out * (gate * sigmoid)]
    });
    ModuleBuilder::new(target).entry(entry).build()
}
