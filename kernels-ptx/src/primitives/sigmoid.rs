//! The logistic function, SiLU and SwiGLU.

use retrograph_ptx::build::Value;

/// `σ(x)` and `σ(−x)`.
///
/// From `e = exp(−|x|)`, which does not overflow: `1 / (1 + e)` and `e / (1 + e)`. Both keep their
/// relative accuracy far out, where `1 − σ(x)` would cancel to nothing.
pub(crate) fn sigmoids<'k>(x: Value<'k, f32>) -> [Value<'k, f32>; 2] {
    let e = (-x.abs()).exp();
    let larger = (e + 1.0).rcp_approx();
    let smaller = e * larger;
    let positive = x.ge(0.0);
    [positive.select(larger, smaller), positive.select(smaller, larger)]
}

/// `silu(x) = x · σ(x)`.
pub(crate) fn silu<'k>(x: Value<'k, f32>) -> Value<'k, f32> {
    let [up, _] = sigmoids(x);
    x * up
}

/// `silu'(x) = σ(x) · (1 + x · σ(−x))`.
pub(crate) fn silu_derivative<'k>(x: Value<'k, f32>) -> Value<'k, f32> {
    let [up, down] = sigmoids(x);
    up * x.fma(down, 1.0)
}

/// `silu(gate) · up`.
pub(crate) fn swiglu<'k>(gate: Value<'k, f32>, up: Value<'k, f32>) -> Value<'k, f32> {
    silu(gate) * up
}

/// The gradients of `gate` and `up`, given that of `silu(gate) · up`.
pub(crate) fn swiglu_gradients<'k>(
    [gate, up]: [Value<'k, f32>; 2],
    grad_out: Value<'k, f32>,
) -> [Value<'k, f32>; 2] {
    let [sigmoid, rest] = sigmoids(gate);
    let derivative = sigmoid * gate.fma(rest, 1.0);
    [grad_out * (up * derivative), grad_out * (gate * sigmoid)]
}
