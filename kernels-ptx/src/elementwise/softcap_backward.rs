//! Backward pass of soft-capping: `grad_input = grad_out · (1 − (y / cap)²)`.
//!
//! Grid: one thread for every eight elements.
//! Deterministic: one thread computes each element from one element of each input.

use retrograph_kernel_abi::DType;
use retrograph_kernel_abi::elementwise::{SOFTCAP_BACKWARD, SoftcapBackwardParameters};
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::{ModuleBuilder, Value};

use super::kernel::{Elementwise, elementwise_with};
use crate::primitives::output::Output;
use crate::primitives::parameters::Declarations;

/// Builds the image.
pub(crate) fn module(target: SmTarget) -> Module {
    let name = SOFTCAP_BACKWARD.entry();
    let entry = elementwise_with(target, name, DType::F32, operands, |[y, grad_out], [cap]| {
        let t = y / cap;
        // (1 − t)(1 + t) keeps its relative accuracy near the cap.
        [grad_out * ((-t + 1.0) * (t + 1.0))]
    });
    ModuleBuilder::new(target).entry(entry).build()
}

fn operands<'k>(k: &mut Declarations<'k>) -> (Elementwise<'k, 2, 1>, [Value<'k, f32>; 1]) {
    let SoftcapBackwardParameters { y, grad_out, grad_input, grad_input_bf16, n, cap } =
        SoftcapBackwardParameters::declare(k);
    let outputs = [Output::new(grad_input, grad_input_bf16)];
    (Elementwise { inputs: [y, grad_out], outputs, n }, [cap])
}
