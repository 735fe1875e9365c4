//! SwiGLU: `out = silu(gate) · up`.
//!
//! Grid: one thread for each four neighbouring elements.
//! Deterministic: every element is computed by one thread from one place of the inputs.

use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::ModuleBuilder;

use crate::quad::streaming;
use crate::sigmoid::silu;

/// The image for `target`.
pub(crate) fn module(target: SmTarget) -> Module {
    let names = (["gate", "up"], ["out"]);
    let entry = streaming((target, "swiglu"), names, |[gate, up]| [silu(gate) * up]);
    ModuleBuilder::new(target).entry(entry).build()
}
