//! Gated linear units of bf16 operands, by activation.

use retrograph_kernel_abi::elementwise::GatedActivation;
use retrograph_ptx::build::Value;

use super::gelu::{geglu_bf16, geglu_gradients_bf16};
use super::sigmoid::{swiglu_bf16, swiglu_gradients_bf16};

/// `activation(gate) · up`.
pub(crate) fn glu_bf16<'k>(
    activation: GatedActivation,
    gate: Value<'k, f32>,
    up: Value<'k, f32>,
) -> Value<'k, f32> {
    match activation {
        GatedActivation::Silu => swiglu_bf16(gate, up),
        GatedActivation::GeluTanh => geglu_bf16(gate, up),
    }
}

/// The gradients of `gate` and `up`, given the gradient of `activation(gate) · up`.
pub(crate) fn glu_gradients_bf16<'k>(
    activation: GatedActivation,
    inputs: [Value<'k, f32>; 2],
    grad_out: Value<'k, f32>,
) -> [Value<'k, f32>; 2] {
    match activation {
        GatedActivation::Silu => swiglu_gradients_bf16(inputs, grad_out),
        GatedActivation::GeluTanh => geglu_gradients_bf16(inputs, grad_out),
    }
}
