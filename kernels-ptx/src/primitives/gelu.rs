//! GELU by its tanh approximation, and GeGLU.
//!
//! `½ (1 + tanh(u)) = σ(2u)`, so `gelu(x) = x · σ(z)` with `z = 2 √(2/π) (x + 0.044715 x³)`. x is
//! clamped to keep z finite; σ(z) is 0 or 1 in f32 long before the clamp.

use retrograph_ptx::build::Value;

use super::sigmoid::sigmoids;

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
