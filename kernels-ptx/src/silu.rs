//! SiLU: `y = x · σ(x)`.
//!
//! Grid: one thread for each four neighbouring elements.
//! Deterministic: every element is computed by one thread from one input.

use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::ModuleBuilder;

use crate::quad::streaming;
use crate::sigmoid::silu;

/// The image for `target`.
pub(crate) fn module(target: SmTarget) -> Module {
    let entry = streaming((target, "silu"), (["x"], ["y"]), |[x]| [silu(x)]);
    ModuleBuilder::new(target).entry(entry).build()
}
