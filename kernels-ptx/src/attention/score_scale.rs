//! The factor and the cap of scores.

use std::f32::consts::LOG2_E;

use retrograph_ptx::build::Value;

use crate::primitives::mma::AccFragment;
use crate::primitives::softcap::tanh;

/// The largest cap. A larger one has the same results, and quotients that underflow.
const MAX_CAP: f32 = 1e30;

/// How products of queries and keys become scores and probabilities: a score is `scale · product`,
/// or, with a cap, `cap · t` with `t = tanh(scale · product ÷ cap)`.
#[derive(Clone, Copy)]
pub(super) struct ScoreScale<'k> {
    /// The factor from products, or t, to scores: the scale, or the cap.
    pub(super) factor: Value<'k, f32>,
    /// The scale ÷ the cap, if there is one.
    ratio: Option<Value<'k, f32>>,
}

impl<'k> ScoreScale<'k> {
    /// The scale, and the cap if `capped` is set.
    pub(super) fn new(capped: bool, scale: Value<'k, f32>, cap: Value<'k, f32>) -> Self {
        if !capped {
            return Self { factor: scale, ratio: None };
        }
        let cap = cap.min(MAX_CAP);
        // Finite, so that a product of 0 stays 0.
        Self { factor: cap, ratio: Some((scale / cap).min(f32::MAX)) }
    }

    /// Whether there is a cap.
    pub(super) fn is_capped(&self) -> bool {
        self.ratio.is_some()
    }

    /// Replaces products by t, if there is a cap.
    pub(super) fn apply_tanh(&self, products: &[AccFragment<'k>]) {
        let Some(ratio) = self.ratio else { return };
        for product in products.iter().flatten() {
            product.update(|product| tanh(product * ratio));
        }
    }

    /// The factor from products, or t, to exponents of 2.
    pub(super) fn log2(&self) -> Value<'k, f32> {
        self.factor * LOG2_E
    }

    /// Multiplies the gradient of a score by the derivative of the cap, `1 − t²`, if there is one.
    pub(super) fn backward(&self, grad: Value<'k, f32>, t: Value<'k, f32>) -> Value<'k, f32> {
        self.ratio.map_or(grad, |_| grad * (-t).fma(t, 1.0))
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
