//! SiLU and SwiGLU in f64: `silu(x) = x · σ(x)`, `swiglu = silu(gate) · up`.

/// The logistic function, without overflow for either sign.
fn sigmoid(x: f64) -> f64 {
    let e = (-x.abs()).exp();
    if x >= 0.0 { 1.0 / (1.0 + e) } else { e / (1.0 + e) }
}

/// `x · σ(x)`.
pub fn silu(x: f64) -> f64 {
    x * sigmoid(x)
}

/// The derivative of [`silu`]: `σ(x) · (1 + x · σ(−x))`.
pub fn silu_derivative(x: f64) -> f64 {
    sigmoid(x) * (1.0 + x * sigmoid(-x))
}

/// `grad_input = grad_out ⊙ silu'(x)`.
pub fn silu_backward(x: &[f64], grad_out: &[f64]) -> Vec<f64> {
    x.iter().zip(grad_out).map(|(&x, grad)| grad * silu_derivative(x)).collect()
}

/// `silu(gate) ⊙ up`.
pub fn swiglu(gate: &[f64], up: &[f64]) -> Vec<f64> {
    gate.iter().zip(up).map(|(&gate, up)| silu(gate) * up).collect()
}

/// The gradients of gate and up, in this order.
pub fn swiglu_backward(gate: &[f64], up: &[f64], grad_out: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let grad_gate = (0..gate.len()).map(|i| grad_out[i] * up[i] * silu_derivative(gate[i]));
    let grad_up = (0..gate.len()).map(|i| grad_out[i] * silu(gate[i]));
    (grad_gate.collect(), grad_up.collect())
}
