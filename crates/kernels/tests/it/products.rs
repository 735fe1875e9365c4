//! The products of a linear layer in f64, as in `gemm::reference`, but by loops that are compiled
//! with optimization.

use retrograph_kernels::gemm::reference;
use retrograph_kernels::ops::GemmShape;

use crate::support::numbers::{Data, doubles};
use crate::support::reference::{matmul, transposed};

/// `y = x·wᵀ`, `[rows, outputs]`.
pub(crate) fn fprop(x: &[f64], w: &[f64], shape: GemmShape) -> Vec<f64> {
    let GemmShape { rows, inputs, outputs } = shape;
    matmul(x, &transposed(w, outputs, inputs), [rows, inputs, outputs])
}

/// `dx = dy·w`, `[rows, inputs]`.
pub(crate) fn dgrad(grad_out: &[f64], w: &[f64], shape: GemmShape) -> Vec<f64> {
    let GemmShape { rows, inputs, outputs } = shape;
    matmul(grad_out, w, [rows, outputs, inputs])
}

/// `dw = dyᵀ·x`, `[outputs, inputs]`.
pub(crate) fn wgrad(grad_out: &[f64], x: &[f64], shape: GemmShape) -> Vec<f64> {
    let GemmShape { rows, inputs, outputs } = shape;
    matmul(&transposed(grad_out, rows, outputs), x, [outputs, rows, inputs])
}

#[test]
fn references_are_those_of_the_library() {
    let mut data = Data::new("references of products");
    for [rows, inputs, outputs] in [[0, 2, 3], [2, 0, 3], [2, 3, 0], [1, 1, 1], [5, 7, 3]] {
        let shape = GemmShape { rows, inputs, outputs };
        let mut matrix = |len| doubles(&data.uniform(len, 2.0));
        let (x, w, y) = (matrix(rows * inputs), matrix(outputs * inputs), matrix(rows * outputs));
        assert_eq!(fprop(&x, &w, shape), reference::fprop(&x, &w, shape));
        assert_eq!(dgrad(&y, &w, shape), reference::dgrad(&y, &w, shape));
        assert_eq!(wgrad(&y, &x, shape), reference::wgrad(&y, &x, shape));
    }
}
