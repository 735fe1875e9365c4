//! The products of a linear layer in f64, without α, bias and accumulation.

use crate::gemm::GemmShape;

/// `y = x·wᵀ`, `[rows, outputs]`.
pub fn fprop(x: &[f64], w: &[f64], shape: GemmShape) -> Vec<f64> {
    let GemmShape { rows, inputs, outputs } = shape;
    let element = |row: usize, output: usize| {
        let x = Strided { matrix: x, first: row * inputs, stride: 1 };
        dot(inputs, x, Strided { matrix: w, first: output * inputs, stride: 1 })
    };
    matrix(rows, outputs, element)
}

/// `dx = dy·w`, `[rows, inputs]`.
pub fn dgrad(grad_out: &[f64], w: &[f64], shape: GemmShape) -> Vec<f64> {
    let GemmShape { rows, inputs, outputs } = shape;
    let element = |row: usize, input: usize| {
        let grad_out = Strided { matrix: grad_out, first: row * outputs, stride: 1 };
        dot(outputs, grad_out, Strided { matrix: w, first: input, stride: inputs })
    };
    matrix(rows, inputs, element)
}

/// `dw = dyᵀ·x`, `[outputs, inputs]`.
pub fn wgrad(grad_out: &[f64], x: &[f64], shape: GemmShape) -> Vec<f64> {
    let GemmShape { rows, inputs, outputs } = shape;
    let element = |output: usize, input: usize| {
        let grad_out = Strided { matrix: grad_out, first: output, stride: outputs };
        dot(rows, grad_out, Strided { matrix: x, first: input, stride: inputs })
    };
    matrix(outputs, inputs, element)
}

/// A strided vector in a matrix.
#[derive(Clone, Copy)]
struct Strided<'a> {
    matrix: &'a [f64],
    /// Index of the first element.
    first: usize,
    stride: usize,
}

/// The dot product of two vectors of `n` elements. Without optimization, as in tests, a loop is
/// four times as fast as iterators.
fn dot(n: usize, a: Strided<'_>, b: Strided<'_>) -> f64 {
    let (mut sum, mut i) = (0.0, 0);
    while i < n {
        sum += a.matrix[a.first + i * a.stride] * b.matrix[b.first + i * b.stride];
        i += 1;
    }
    sum
}

/// The row-major matrix of the values of `element(row, column)`.
fn matrix(rows: usize, columns: usize, element: impl Fn(usize, usize) -> f64) -> Vec<f64> {
    (0..rows * columns).map(|i| element(i / columns, i % columns)).collect()
}
