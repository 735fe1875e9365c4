//! Backward pass of SiLU: `grad_input = grad_out · σ(x) · (1 + x · σ(−x))`.
//!
//! Grid: one thread for every eight elements.
//! Deterministic: one thread computes each element from one element of each input.

use retrograph_kernel_abi::DType;
use retrograph_kernel_abi::elementwise::{SILU_BACKWARD, SiluBackwardParameters};
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::ModuleBuilder;

use super::kernel::{Elementwise, elementwise};
use crate::primitives::output::Output;
use crate::primitives::parameters::Declarations;
use crate::primitives::sigmoid::silu_derivative;

/// Builds the image.
pub(crate) fn module(target: SmTarget) -> Module {
    let entry =
        elementwise(target, SILU_BACKWARD.entry(), DType::F32, operands, |[x, grad_out]| {
            [grad_out * silu_derivative(x)]
        });
    ModuleBuilder::new(target).entry(entry).build()
}

fn operands<'k>(k: &mut Declarations<'k>) -> Elementwise<'k, 2, 1> {
    let SiluBackwardParameters { x, grad_out, grad_input, grad_input_bf16, n } =
        SiluBackwardParameters::declare(k);
    Elementwise { inputs: [x, grad_out], outputs: [Output::new(grad_input, grad_input_bf16)], n }
}
