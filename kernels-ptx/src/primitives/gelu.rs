//! GELU by its tanh approximation, and GeGLU.
//!
//! `½ (1 + tanh(u)) = σ(2u)`, so `gelu(x) = x · σ(z)` with `z = 2 √(2/π) (x + 0.044715 x³)`. x is
//! clamped to keep z finite; σ(z) is 0 or 1 in f32 long before the clamp.
//!
//! Functions of bf16 operands need about half of the instructions. The relative error of σ(z) is
//! below 2⁻¹⁵, and σ(z) is 0 where it is below 2⁻¹²⁶.

use std::f32::consts::LOG2_E;

use retrograph_ptx::build::Value;

use super::sigmoid::{sigmoid_exp2_bf16, sigmoids};

/// `2 √(2/π)`.
const LINEAR: f32 = 1.595_769_121_605_730_8_f64 as f32;
/// `2 √(2/π) · 0.044715`.
const CUBIC: f32 = (1.595_769_121_605_730_8_f64 * 0.044_715) as f32;
/// Beyond ±16, z is beyond ±317.
const CLAMP: f32 = 16.0;

/// `σ(z)`, and `gelu'(x) = σ(z) + σ(z) · σ(−z) · x · z'`.
fn gate_and_derivative<'k>(x: Value<'k, f32>) -> [Value<'k, f32>; 2] {
    let clamped = x.max(-CLAMP).min(CLAMP);
    let square = clamped * clamped;
    let [up, down] = sigmoids(clamped * (square * CUBIC + LINEAR));
    // Uses x, not the clamped value, so that NaN stays NaN; at the clamp, `up * down` is 0.
    let derivative = (up * down * x).fma(square * (3.0 * CUBIC) + LINEAR, up);
    [up, derivative]
}

/// `gelu(gate) · up`.
pub(crate) fn geglu<'k>(gate: Value<'k, f32>, up: Value<'k, f32>) -> Value<'k, f32> {
    let [sigmoid, _] = gate_and_derivative(gate);
    gate * sigmoid * up
}

/// The gradients of `gate` and `up`, given the gradient of `gelu(gate) · up`.
pub(crate) fn geglu_gradients<'k>(
    [gate, up]: [Value<'k, f32>; 2],
    grad_out: Value<'k, f32>,
) -> [Value<'k, f32>; 2] {
    let [sigmoid, derivative] = gate_and_derivative(gate);
    [grad_out * (up * derivative), grad_out * (gate * sigmoid)]
}

/// `σ(z)` for x in bf16 and its square.
fn sigmoid_of_z_bf16<'k>(x: Value<'k, f32>, square: Value<'k, f32>) -> Value<'k, f32> {
    sigmoid_exp2_bf16(x * square.fma(-LOG2_E * CUBIC, -LOG2_E * LINEAR))
}

/// [`geglu`] for operands in bf16.
pub(crate) fn geglu_bf16<'k>(gate: Value<'k, f32>, up: Value<'k, f32>) -> Value<'k, f32> {
    gate * sigmoid_of_z_bf16(gate, gate * gate) * up
}

/// [`geglu_gradients`] for operands in bf16.
///
/// `gelu'(x) = σ(z) + σ(z) · (x − gelu(x)) · z'`, since `x · σ(−z) = x − gelu(x)`.
pub(crate) fn geglu_gradients_bf16<'k>(
    [gate, up]: [Value<'k, f32>; 2],
    grad_out: Value<'k, f32>,
) -> [Value<'k, f32>; 2] {
    let clamped = gate.max(-CLAMP).min(CLAMP);
    let square = clamped * clamped;
    let sigmoid = sigmoid_of_z_bf16(clamped, square);
    let gelu = gate * sigmoid;
    let derivative = (sigmoid * (gate - gelu)).fma(square.fma(3.0 * CUBIC, LINEAR), sigmoid);
    [grad_out * (up * derivative), grad_out * gelu]
}
