//! Addition: `out = a + b`, for residual connections.
//!
//! Grid: one thread per vec4.
//! Deterministic: one thread computes each element from one element of each input.

use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::ModuleBuilder;

use crate::primitives::vec4::elementwise;

/// Builds the image.
pub(crate) fn module(target: SmTarget) -> Module {
    let entry = elementwise((target, "add"), (["a", "b"], ["out"]), |[a, b]| [a + b]);
    ModuleBuilder::new(target).entry(entry).build()
}
