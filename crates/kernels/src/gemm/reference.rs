//! The products of a linear layer in f64, without α, bias and accumulation.

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

/// A strided vector in a matrix: the elements, the index of the first one, and the stride.
type Strided<'a> = (&'a [f64], usize, usize);

/// The dot product of two vectors of `n` elements. Without optimization, as in tests, a loop is
/// four times as fast as iterators.
fn dot(n: usize, (a, a_start, a_step): Strided<'_>, (b, b_start, b_step): Strided<'_>) -> f64 {
    let (mut sum, mut i) = (0.0, 0);
    while i < n {
        sum += a[a_start + i * a_step] * b[b_start + i * b_step];
        i += 1;
    }
    sum
}

/// The row-major matrix of the values of `element(row, column)`.
fn matrix(rows: usize, columns: usize, element: impl Fn(usize, usize) -> f64) -> Vec<f64> {
    (0..rows * columns).map(|i| element(i / columns, i % columns)).collect()
}
