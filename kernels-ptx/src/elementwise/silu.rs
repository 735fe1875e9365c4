//! SiLU: `y = x · σ(x)`.
//!
//! Grid: one thread per vec4.
//! Deterministic: one thread computes each element from one input.

use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::ModuleBuilder;

use crate::primitives::sigmoid::silu;
use crate::primitives::vec4::elementwise;

/// Builds the image.
pub(crate) fn module(target: SmTarget) -> Module {
    let entry = elementwise((target, "silu"), (["x"], ["y"]), |[x]| [silu(x)]);
    ModuleBuilder::new(target).entry(entry).build()
}
