//! Backward pass of SiLU: `grad_input = grad_out · σ(x) · (1 + x · σ(−x))`.
//!
//! Grid: one thread per vec4.
//! Deterministic: one thread computes each element from one element of each input.

use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::ModuleBuilder;

use crate::primitives::sigmoid::silu_derivative;
use crate::primitives::vec4::elementwise;

/// Builds the image.
pub(crate) fn module(target: SmTarget) -> Module {
    let names = (["x", "grad_out"], ["grad_input"]);
    let entry = elementwise((target, "silu_backward"), names, |[x, grad_out]| {
        [grad_out * silu_derivative(x)]
    });
    ModuleBuilder::new(target).entry(entry).build()
}
