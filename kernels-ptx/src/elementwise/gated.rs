//! The operands of gated activations, SwiGLU and GeGLU.

use retrograph_kernel_abi::elementwise::{GatedBackwardParameters, GatedParameters};
use retrograph_ptx::build::Ptr;

use super::kernel::Elementwise;
use crate::primitives::output::Output;
use crate::primitives::parameters::Declarations;

/// Declares the parameters of a forward pass.
pub(super) fn forward<'k>(k: &mut Declarations<'k>) -> Elementwise<'k, 2, 1> {
    let GatedParameters { gate, up, out, out_bf16, n } = GatedParameters::declare(k);
    let inputs = [gate, up].map(Ptr::reinterpret);
    Elementwise { inputs, outputs: [Output::new(out, out_bf16)], n }
}

/// Declares the parameters of a backward pass.
pub(super) fn backward<'k>(k: &mut Declarations<'k>) -> Elementwise<'k, 3, 2> {
    let GatedBackwardParameters {
        gate,
        up,
        grad_out,
        grad_gate,
        grad_gate_bf16,
        grad_up,
        grad_up_bf16,
        n,
    } = GatedBackwardParameters::declare(k);
    let inputs = [gate, up, grad_out].map(Ptr::reinterpret);
    Elementwise {
        inputs,
        outputs: [Output::new(grad_gate, grad_gate_bf16), Output::new(grad_up, grad_up_bf16)],
        n,
    }
}
