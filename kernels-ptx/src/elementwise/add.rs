//! Addition: `out = a + b`, for residual connections.
//!
//! Grid: one thread for every eight elements.
//! Deterministic: one thread computes each element from one element of each input.

use retrograph_kernel_abi::DType;
use retrograph_kernel_abi::elementwise::{ADD, AddParameters};
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::ModuleBuilder;

use super::kernel::{Elementwise, elementwise};
use crate::primitives::output::Output;
use crate::primitives::parameters::Declarations;

/// Builds the image.
pub(crate) fn module(target: SmTarget) -> Module {
    let entry = elementwise(target, ADD.entry(), DType::F32, operands, |[a, b]| [a + b]);
    ModuleBuilder::new(target).entry(entry).build()
}

fn operands<'k>(k: &mut Declarations<'k>) -> Elementwise<'k, 2, 1> {
    let AddParameters { a, b, out, out_bf16, n } = AddParameters::declare(k);
    Elementwise { inputs: [a, b], outputs: [Output::new(out, out_bf16)], n }
}
