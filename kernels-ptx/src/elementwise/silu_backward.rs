//! Backward pass of SiLU: `grad_input = grad_out · σ(x) · (1 + x · σ(−x))`.
//!
//! Grid: one thread for each four neighbouring elements.
//! Deterministic: every element is computed by one thread from one place of the inputs.

use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::ModuleBuilder;

use crate::primitives::sigmoid::silu_derivative;
use crate::primitives::vec4::elementwise;

/// The image for `target`.
pub(crate) fn module(target: SmTarget) -> Module {
    let names = (["x", "grad_out"], ["grad_input"]);
    let entry = elementwise((target, "silu_backward"), names, |[x, grad_out]| {
        [grad_out * silu_derivative(x)]
    });
    ModuleBuilder::new(target).entry(entry).build()
}
