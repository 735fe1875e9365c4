//! SiLU: `y = x · σ(x)`.
//!
//! Grid: one thread for each four neighbouring elements.
//! Deterministic: every element is computed by one thread from one input.

use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::ModuleBuilder;

use crate::primitives::sigmoid::silu;
use crate::primitives::vec4::elementwise;

/// The image for `target`.
pub(crate) fn module(target: SmTarget) -> Module {
    let entry = elementwise((target, "silu"), (["x"], ["y"]), |[x]| [silu(x)]);
    ModuleBuilder::new(target).entry(entry).build()
}
