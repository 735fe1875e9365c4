//! Partial sums of the squares of gradients, for the global norm.
//!
//! A product whose result is a whole gradient also writes them, so no launch reads the gradient
//! only for the norm.

use std::collections::HashSet;

use retrograph_kernels::ops::{GemmShape, WgradSquares, grad_norm_partials_len};
use retrograph_runtime::{BufferId, Pass, Slice};

use super::gradient::Gradient;
use crate::parameters::{EMBEDDING, Parameter};

/// The partial sums of a pass.
#[derive(Debug)]
pub(super) struct GradientSquares {
    /// The partial sums, of which the first `written` are in use.
    partials: Slice<f64>,
    written: usize,
    /// The gradients whose products write partial sums.
    of_products: HashSet<GradientId>,
    /// The gradient of the token table. If the table is also the output projection, a product
    /// computes a part of it.
    table: Option<GradientId>,
}

/// A gradient: its buffer and its first byte.
type GradientId = (BufferId, usize);

impl GradientSquares {
    /// Declares the buffer for the partial sums of all trained parameters.
    pub(super) fn declare(pass: &mut Pass, trained: &[(&Parameter, Gradient)]) -> Self {
        let count = |(parameter, _): &(&Parameter, Gradient)| {
            let chunks = grad_norm_partials_len(&[parameter.len()]);
            match parameter.shape[..] {
                [outputs, inputs] => {
                    let shape = GemmShape { rows: 0, inputs, outputs };
                    chunks.max(WgradSquares::partials(shape))
                }
                _ => chunks,
            }
        };
        let partials = pass.transient("clip/partials", trained.iter().map(count).sum());
        let table = trained.iter().find(|(parameter, _)| parameter.name == EMBEDDING);
        let table = table.map(|(_, gradient)| id(*gradient));
        Self { partials, written: 0, of_products: HashSet::new(), table }
    }

    /// Returns the partial sums that the product of `gradient`, a matrix of this shape, writes;
    /// `None` if it is not the whole gradient.
    pub(super) fn of_product(
        &mut self,
        gradient: Gradient,
        shape: GemmShape,
    ) -> Option<Slice<f64>> {
        let whole = Some(id(gradient)) != self.table && self.of_products.insert(id(gradient));
        whole.then(|| self.next(WgradSquares::partials(shape)))
    }

    /// Whether no product writes the partial sums of `gradient`.
    pub(super) fn misses(&self, gradient: Gradient) -> bool {
        !self.of_products.contains(&id(gradient))
    }

    /// Reserves `count` further partial sums and returns their range.
    pub(super) fn next(&mut self, count: usize) -> Slice<f64> {
        let first = self.written;
        self.written += count;
        self.partials.slice(first..self.written)
    }

    /// All partial sums.
    pub(super) fn all(&self) -> Slice<f64> {
        self.partials.slice(0..self.written)
    }
}

fn id(gradient: Gradient) -> GradientId {
    match gradient {
        Gradient::F32(slice) => (slice.buffer(), slice.byte_range().start),
        Gradient::Bf16(slice) => (slice.buffer(), slice.byte_range().start),
    }
}
