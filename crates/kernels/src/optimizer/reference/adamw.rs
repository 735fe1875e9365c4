//! AdamW and its learning-rate schedule in f64.

use std::f64::consts::PI;

use crate::optimizer::Decay;

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
    pub exp_avg: f64,
    /// The second moment.
    pub exp_avg_sq: f64,
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
        let first = beta1 * self.exp_avg + (1.0 - beta1) * grad;
        let second = beta2 * self.exp_avg_sq + (1.0 - beta2) * grad * grad;
        let root = second.sqrt() / (1.0 - beta2.powf(t)).sqrt();
        let decayed = self.param * (1.0 - lr * weight_decay);
        let param = decayed - lr / (1.0 - beta1.powf(t)) * first / (root + eps);
        Self { param, exp_avg: first, exp_avg_sq: second }
    }
}

/// A linear warm-up to `peak_lr`, a constant phase, and a decay to `min_lr`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LearningRate {
    /// The rate at the end of the warm-up.
    pub peak_lr: f64,
    /// The rate at `total_steps` and after.
    pub min_lr: f64,
    /// Steps of warm-up; 0 for none.
    pub warmup_steps: u32,
    /// The step at which the decay starts.
    pub decay_start: u32,
    /// The step at which the decay ends.
    pub total_steps: u32,
    /// The shape of the decay.
    pub decay: Decay,
}

impl LearningRate {
    /// The rate of `step`, which counts from 0.
    pub fn at(&self, step: u32) -> f64 {
        let Self { peak_lr, min_lr, warmup_steps, decay_start, total_steps, decay } = *self;
        if step < warmup_steps {
            return peak_lr * (f64::from(step) + 1.0) / f64::from(warmup_steps);
        }
        if step < decay_start {
            return peak_lr;
        }
        if step >= total_steps {
            return min_lr;
        }
        let progress = f64::from(step - decay_start) / f64::from(total_steps - decay_start);
        let factor = match decay {
            Decay::Cosine => 0.5 * (1.0 + (PI * progress).cos()),
            Decay::Linear => 1.0 - progress,
        };
        min_lr + (peak_lr - min_lr) * factor
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_rises_to_the_peak_and_falls_to_the_minimum() {
        for (decay, quarter) in
            [(Decay::Cosine, 0.1 + 0.9 * 0.853_553_390_593), (Decay::Linear, 0.775)]
        {
            let (peak_lr, min_lr) = (1.0, 0.1);
            let (warmup_steps, decay_start, total_steps) = (4, 6, 18);
            let rate =
                LearningRate { peak_lr, min_lr, warmup_steps, decay_start, total_steps, decay };
            assert_eq!([0, 3, 4, 5, 6].map(|step| rate.at(step)), [0.25, 1.0, 1.0, 1.0, 1.0]);
            assert!((rate.at(9) - quarter).abs() < 1e-9, "{}", rate.at(9));
            assert!((rate.at(12) - 0.55).abs() < 1e-12);
            assert_eq!((rate.at(18), rate.at(1000)), (0.1, 0.1));
        }
    }
}
