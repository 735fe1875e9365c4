//! Soft-capping: `y = cap · tanh(x / cap)`, with a relative error below 2⁻²¹.
//!
//! With `u = x / cap`: near 0, the Taylor series `x (1 − u²/3 + …)`, which does not underflow with
//! u; elsewhere `cap (1 − e) / (1 + e)` with `e = exp(−2|u|)`.
//!
//! Grid: one thread for every eight elements.
//! Deterministic: one thread computes each element from one input.

use retrograph_kernel_abi::DType;
use retrograph_kernel_abi::elementwise::{SOFTCAP, SoftcapParameters};
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::{ModuleBuilder, Value};

use super::kernel::{Elementwise, elementwise_with};
use crate::primitives::output::Output;
use crate::primitives::parameters::Declarations;
use crate::primitives::softcap::softcap;

/// Builds the image.
pub(crate) fn module(target: SmTarget) -> Module {
    let name = SOFTCAP.entry();
    let entry =
        elementwise_with(target, name, DType::F32, operands, |[x], [cap]| [softcap(x, cap)]);
    ModuleBuilder::new(target).entry(entry).build()
}

fn operands<'k>(k: &mut Declarations<'k>) -> (Elementwise<'k, 1, 1>, [Value<'k, f32>; 1]) {
    let SoftcapParameters { x, y, y_bf16, n, cap } = SoftcapParameters::declare(k);
    (Elementwise { inputs: [x], outputs: [Output::new(y, y_bf16)], n }, [cap])
}
