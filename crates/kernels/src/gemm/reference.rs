//! The products of a linear layer in f64. Tests add α, bias and accumulation, which are one
//! operation per element.

use crate::gemm::GemmShape;

/// `y = x·wᵀ`, `[rows, outputs]`.
pub fn fprop(x: &[f64], w: &[f64], shape: GemmShape) -> Vec<f64> {
    let GemmShape { rows, inputs, outputs } = shape;
    let element = |row: usize, output: usize| {
        (0..inputs).map(|i| x[row * inputs + i] * w[output * inputs + i]).sum()
    };
    matrix(rows, outputs, element)
}

/// `dx = dy·w`, `[rows, inputs]`.
pub fn dgrad(grad_out: &[f64], w: &[f64], shape: GemmShape) -> Vec<f64> {
    let GemmShape { rows, inputs, outputs } = shape;
    let element = |row: usize, input: usize| {
        (0..outputs).map(|o| grad_out[row * outputs + o] * w[o * inputs + input]).sum()
    };
    matrix(rows, inputs, element)
}

/// `dw = dyᵀ·x`, `[outputs, inputs]`.
pub fn wgrad(grad_out: &[f64], x: &[f64], shape: GemmShape) -> Vec<f64> {
    let GemmShape { rows, inputs, outputs } = shape;
    let element = |output: usize, input: usize| {
        (0..rows).map(|r| grad_out[r * outputs + output] * x[r * inputs + input]).sum()
    };
    matrix(outputs, inputs, element)
}

/// The row-major matrix whose elements `element(row, column)` gives.
fn matrix(rows: usize, columns: usize, element: impl Fn(usize, usize) -> f64) -> Vec<f64> {
    (0..rows * columns).map(|i| element(i / columns, i % columns)).collect()
}
