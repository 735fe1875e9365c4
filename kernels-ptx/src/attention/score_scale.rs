//! The factor and the cap of scores.

use retrograph_ptx::build::{Kernel, Value};

use super::config::Pass;
use crate::primitives::mma::AccFragment;
use crate::primitives::softcap::tanh;

/// What becomes of a product of a query and a key before the softmax.
#[derive(Clone, Copy)]
pub(super) struct ScoreScale<'k> {
    /// The factor in the softmax: 1 if scores have a cap.
    pub(super) softmax: Value<'k, f32>,
    cap: Option<ScoreCap<'k>>,
}

#[derive(Clone, Copy)]
struct ScoreCap<'k> {
    /// The scale ÷ the cap.
    factor: Value<'k, f32>,
    cap: Value<'k, f32>,
}

impl<'k> ScoreScale<'k> {
    /// The factor alone.
    pub(super) fn uncapped(scale: Value<'k, f32>) -> Self {
        Self { softmax: scale, cap: None }
    }

    /// The factor, and the cap if `pass` has one.
    pub(super) fn new(k: &Kernel<'k>, pass: Pass, scale: Value<'k, f32>, cap: Value<'k, f32>) -> Self {
        if pass != Pass::CappedPrefill {
            return Self::uncapped(scale);
        }
        // Finite, so that a score of 0 stays 0.
        let factor = (scale / cap).min(f32::MAX);
        Self { softmax: k.constant(1.0), cap: Some(ScoreCap { factor, cap }) }
    }

    /// Replaces products by capped scores, if there is a cap.
    pub(super) fn apply(&self, scores: &[AccFragment<'k>]) {
        let Some(ScoreCap { factor, cap }) = self.cap else { return };
        for score in scores.iter().flatten() {
            score.update(|score| tanh(score * factor) * cap);
        }
    }
}
