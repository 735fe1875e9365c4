//! SiLU: `y = x · σ(x)`.
//!
//! Grid: one thread for every eight elements.
//! Deterministic: one thread computes each element from one input.

use retrograph_kernel_abi::DType;
use retrograph_kernel_abi::elementwise::{SILU, SiluParameters};
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::ModuleBuilder;

use super::kernel::{Elementwise, elementwise};
use crate::primitives::output::Output;
use crate::primitives::parameters::Declarations;
use crate::primitives::sigmoid::silu;

/// Builds the image.
pub(crate) fn module(target: SmTarget) -> Module {
    let entry = elementwise(target, SILU.entry(), DType::F32, operands, |[x]| [silu(x)]);
    ModuleBuilder::new(target).entry(entry).build()
}

fn operands<'k>(k: &mut Declarations<'k>) -> Elementwise<'k, 1, 1> {
    let SiluParameters { x, y, y_bf16, n } = SiluParameters::declare(k);
    Elementwise { inputs: [x], outputs: [Output::new(y, y_bf16)], n }
}
