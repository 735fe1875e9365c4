//! Addition: `out = a + b`, for residual connections.
//!
//! Grid: one thread for each four neighbouring elements.
//! Deterministic: every element is computed by one thread from one place of the inputs.

use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::ModuleBuilder;

use crate::primitives::vec4::elementwise;

/// The image for `target`.
pub(crate) fn module(target: SmTarget) -> Module {
    let entry = elementwise((target, "add"), (["a", "b"], ["out"]), |[a, b]| [a + b]);
    ModuleBuilder::new(target).entry(entry).build()
}
