//! GELU by its tanh approximation, and GeGLU, in f64.
//!
//! `gelu(x) = ½ x (1 + tanh(u))` with `u = √(2/π) (x + 0.044715 x³)`, written as
//! `x / (1 + exp(−2u))` so that it keeps its relative accuracy at negative x.

use std::f64::consts::FRAC_2_PI;

/// `2u`, and its derivative.
fn exponent(x: f64) -> (f64, f64) {
    let factor = 2.0 * FRAC_2_PI.sqrt();
    (factor * (x + 0.044_715 * x.powi(3)), factor * (1.0 + 3.0 * 0.044_715 * x * x))
}

/// `½ x (1 + tanh(√(2/π) (x + 0.044715 x³)))`.
pub fn gelu(x: f64) -> f64 {
    let (z, _) = exponent(x);
    x / (1.0 + (-z).exp())
}

/// The derivative of [`gelu`].
pub fn gelu_derivative(x: f64) -> f64 {
    let (z, slope) = exponent(x);
    let sigmoid = 1.0 / (1.0 + (-z).exp());
    // Above 16, σ(−z) is 0, and the factor next to it may be infinite.
    let rest = if x > 16.0 { 0.0 } else { x * slope / (1.0 + z.exp()) };
    sigmoid * (1.0 + rest)
}

/// `gelu(gate) ⊙ up`.
pub fn geglu(gate: &[f64], up: &[f64]) -> Vec<f64> {
    gate.iter().zip(up).map(|(&gate, up)| gelu(gate) * up).collect()
}

/// The gradients of gate and up, in this order.
pub fn geglu_backward(gate: &[f64], up: &[f64], grad_out: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let grad_gate = (0..gate.len()).map(|i| grad_out[i] * up[i] * gelu_derivative(gate[i]));
    let grad_up = (0..gate.len()).map(|i| grad_out[i] * gelu(gate[i]));
    (grad_gate.collect(), grad_up.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of PyTorch 2.15 in float64: `gelu(x, approximate="tanh")` and its gradient.
    #[test]
    fn values_and_gradients_are_those_of_pytorch() {
        for (x, value, gradient) in [
            (-6.0, -8.43964897967453e-11, -7.709_976_012_836_329e-10),
            (-1.5, -0.10042842301976707, -0.127_710_793_151_433_08),
            (-0.75, -0.17003944483437966, 0.001_061_743_862_585_618),
            (0.0, 0.0, 0.5),
            (0.25, 0.149_675_350_701_685, 0.695_354_095_151_060_4),
            (1.0, 0.841_191_990_608_276_8, 1.082_964_083_845_782_6),
            (3.0, 2.996_362_607_918_227, 1.011_584_166_630_969_5),
            (9.0, 9.0, 1.0),
        ] {
            // PyTorch's form cancels at negative x.
            assert!((gelu(x) - value).abs() < 1e-15, "gelu({x}) is {}", gelu(x));
            let found = gelu_derivative(x);
            assert!((found - gradient).abs() < 2e-15, "gelu'({x}) is {found}");
        }
        for x in [-1e30, -40.0, 40.0, 1e30] {
            assert_eq!(gelu(x), f64::max(x, 0.0));
            assert_eq!(gelu_derivative(x), f64::from(u8::from(x > 0.0)));
        }
    }
}
