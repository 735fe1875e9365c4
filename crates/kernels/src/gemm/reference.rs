//! The products of a linear layer in f64. Tests add α, bias and accumulation, which are one
//! operation per element.

use crate::gemm::GemmShape;

/// `y = x·wᵀ`, `[rows, outputs]`.
pub fn fprop(x: &[f64], w: &[f64], shape: GemmShape) -> Vec<f64> {
    let GemmShape { rows, inputs, outputs } = shape;
    let element =
        |row: usize, output: usize| dot(inputs, (x, row * inputs, 1), (w, output * inputs, 1));
    matrix(rows, outputs, element)
}

/// `dx = dy·w`, `[rows, inputs]`.
pub fn dgrad(grad_out: &[f64], w: &[f64], shape: GemmShape) -> Vec<f64> {
    let GemmShape { rows, inputs, outputs } = shape;
    let element =
        |row: usize, input: usize| dot(outputs, (grad_out, row * outputs, 1), (w, input, inputs));
    matrix(rows, inputs, element)
}

/// `dw = dyᵀ·x`, `[outputs, inputs]`.
pub fn wgrad(grad_out: &[f64], x: &[f64], shape: GemmShape) -> Vec<f64> {
    let GemmShape { rows, inputs, outputs } = shape;
    let element =
        |output: usize, input: usize| dot(rows, (grad_out, output, outputs), (x, input, inputs));
    matrix(outputs, inputs, element)
}

/// The elements of a vector in a matrix: the first one, and the distance from one to the next.
type Strided<'a> = (&'a [f64], usize, usize);

/// The dot product of two vectors of `n` elements. A loop: without optimization, as in tests,
/// iterators take four times as long.
fn dot(n: usize, (a, a_start, a_step): Strided<'_>, (b, b_start, b_step): Strided<'_>) -> f64 {
    let (mut sum, mut i) = (0.0, 0);
    while i < n {
        sum += a[a_start + i * a_step] * b[b_start + i * b_step];
        i += 1;
    }
    sum
}

/// The row-major matrix whose elements `element(row, column)` gives.
fn matrix(rows: usize, columns: usize, element: impl Fn(usize, usize) -> f64) -> Vec<f64> {
    (0..rows * columns).map(|i| element(i / columns, i % columns)).collect()
}
