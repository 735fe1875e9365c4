//! AdamW and its learning-rate schedule in f64.

use std::f64::consts::PI;

/// Hyperparameters that do not change from step to step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamWConstants {
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the square root of the corrected second moment.
    pub eps: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
}

/// One scalar parameter with its moments.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamWState {
    /// The parameter.
    pub param: f64,
    /// The first moment.
    pub first: f64,
    /// The second moment.
    pub second: f64,
}

impl AdamWState {
    /// The state after one update with gradient `grad` at learning rate `lr`; `step` counts from 0.
    ///
    /// In the order of `torch.optim.AdamW`: decay first, then
    /// `param −= lr / (1 − β1^t) · first / (sqrt(second) / sqrt(1 − β2^t) + eps)` with
    /// `t = step + 1`.
    #[must_use]
    pub fn updated(self, grad: f64, constants: &AdamWConstants, lr: f64, step: u32) -> Self {
        let AdamWConstants { beta1, beta2, eps, weight_decay } = *constants;
        let t = f64::from(step) + 1.0;
        let first = beta1 * self.first + (1.0 - beta1) * grad;
        let second = beta2 * self.second + (1.0 - beta2) * grad * grad;
        let root = second.sqrt() / (1.0 - beta2.powf(t)).sqrt();
        let decayed = self.param * (1.0 - lr * weight_decay);
        let param = decayed - lr / (1.0 - beta1.powf(t)) * first / (root + eps);
        Self { param, first, second }
    }
}

/// A linear warm-up to `peak_lr`, then a cosine to `min_lr`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LearningRate {
    /// The rate at the end of the warm-up.
    pub peak_lr: f64,
    /// The rate at `total_steps` and after.
    pub min_lr: f64,
    /// Steps of warm-up; 0 for none.
    pub warmup_steps: u32,
    /// The step at which the cosine ends.
    pub total_steps: u32,
}

impl LearningRate {
    /// The rate of `step`, which counts from 0.
    pub fn at(&self, step: u32) -> f64 {
        let Self { peak_lr, min_lr, warmup_steps, total_steps } = *self;
        if step < warmup_steps {
            return peak_lr * (f64::from(step) + 1.0) / f64::from(warmup_steps);
        }
        if step >= total_steps {
            return min_lr;
        }
        let progress = f64::from(step - warmup_steps) / f64::from(total_steps - warmup_steps);
        min_lr + (peak_lr - min_lr) * 0.5 * (1.0 + (PI * progress).cos())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_rises_to_the_peak_and_falls_to_the_minimum() {
        let rate = LearningRate { peak_lr: 1.0, min_lr: 0.1, warmup_steps: 4, total_steps: 14 };
        assert_eq!((rate.at(0), rate.at(3), rate.at(4)), (0.25, 1.0, 1.0));
        assert!((rate.at(9) - 0.55).abs() < 1e-12);
        assert_eq!((rate.at(14), rate.at(1000)), (0.1, 0.1));
    }
}
