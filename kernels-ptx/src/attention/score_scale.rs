//! The factor and the cap of scores.

use std::f32::consts::LOG2_E;

use retrograph_ptx::build::Value;

use crate::primitives::mma::AccFragment;
use crate::primitives::softcap::{Softcap, softcap_backward};

/// How products of queries and keys become scores and probabilities: a score is `scale · product`,
/// or, with a cap, `cap · t` with `t = tanh(scale · product ÷ cap)`.
#[derive(Clone, Copy)]
pub(super) struct ScoreScale<'k> {
    /// The factor from products, or t, to scores: the scale, or the cap.
    pub(super) factor: Value<'k, f32>,
    cap: Option<Softcap<'k>>,
}

impl<'k> ScoreScale<'k> {
    /// The scale, and the cap if `capped` is set.
    pub(super) fn new(capped: bool, scale: Value<'k, f32>, cap: Value<'k, f32>) -> Self {
        let cap = capped.then(|| Softcap::new(scale, cap));
        Self { factor: cap.map_or(scale, |softcap| softcap.cap), cap }
    }

    /// Whether there is a cap.
    pub(super) fn is_capped(&self) -> bool {
        self.cap.is_some()
    }

    /// Replaces products by t, if there is a cap.
    pub(super) fn apply_tanh(&self, products: &[AccFragment<'k>]) {
        let Some(cap) = self.cap else { return };
        for product in products.iter().flatten() {
            product.update(|product| cap.tanh(product));
        }
    }

    /// The factor from products, or t, to exponents of 2.
    pub(super) fn log2(&self) -> Value<'k, f32> {
        self.factor * LOG2_E
    }

    /// Multiplies the gradient of a score by the derivative of the cap, if there is one.
    pub(super) fn backward(&self, grad: Value<'k, f32>, t: Value<'k, f32>) -> Value<'k, f32> {
        if self.is_capped() { softcap_backward(grad, t) } else { grad }
    }
}

/// The probability of a product, or t, from [`ScoreScale::log2`] and the log-sum-exp of its query
/// to base 2.
pub(super) fn prob<'k>(
    t: Value<'k, f32>,
    log2: Value<'k, f32>,
    lse: Value<'k, f32>,
) -> Value<'k, f32> {
    t.fma(log2, -lse).exp2_ftz()
}
