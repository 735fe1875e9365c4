//! Configuration of optimizer and schedule.

use retrograph_kernels::ops::Decay;
use retrograph_kernels::optimizer::reference::adamw::LearningRate;
use serde::{Deserialize, Serialize};

use super::check::require;
use crate::error::Result;

/// The learning rate after the linear warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LrSchedule {
    /// Decays along half a period of a cosine, from the end of the warm-up.
    #[default]
    Cosine,
    /// Decays linearly, from the end of the warm-up.
    Linear,
    /// Stays at the peak.
    Constant,
    /// Warm-up, stable, decay (Hu et al., arXiv 2404.06395): stays at the peak and decays in the
    /// last steps along half a period of a cosine, as in `transformers`.
    Wsd {
        /// Steps of the decay.
        decay_steps: u32,
    },
}

/// AdamW with decoupled weight decay and global-norm clipping; linear warm-up, then a schedule that
/// ends at `min_lr`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct OptimizerConfig {
    /// Learning rate after the warm-up.
    pub peak_lr: f64,
    /// Learning rate at the end of the decay and after it. A constant schedule ignores it.
    pub min_lr: f64,
    /// Steps of linear warm-up.
    pub warmup_steps: u32,
    /// Step at which the decay ends.
    pub total_steps: u32,
    /// The learning rate after the warm-up; cosine in checkpoints without this field.
    #[serde(default)]
    pub schedule: LrSchedule,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub eps: f32,
    /// Decoupled decay of matrices; norms and biases do not decay.
    pub weight_decay: f32,
    /// Maximum global gradient norm; larger gradients are scaled down.
    pub max_norm: f32,
}

impl OptimizerConfig {
    /// Returns the defaults for a run of `total_steps`: warm-up in a tenth of the steps, and betas
    /// and epsilon of `transformers` and PyTorch.
    pub fn new(peak_lr: f64, total_steps: u32) -> Self {
        Self {
            peak_lr,
            min_lr: peak_lr / 10.0,
            warmup_steps: total_steps / 10,
            total_steps,
            schedule: LrSchedule::Cosine,
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-8,
            weight_decay: 0.01,
            max_norm: 1.0,
        }
    }

    /// Returns the learning rate of `step`, counted from 0, for display. The device computes its
    /// own.
    pub fn learning_rate(&self, step: u32) -> f64 {
        self.rate().at(step)
    }

    /// Returns the constants of the schedule on the device.
    pub(crate) fn rate(&self) -> LearningRate {
        let Self { peak_lr, min_lr, warmup_steps, total_steps, schedule, .. } = *self;
        let (decay_start, decay) = match schedule {
            LrSchedule::Cosine => (warmup_steps, Decay::Cosine),
            LrSchedule::Linear => (warmup_steps, Decay::Linear),
            LrSchedule::Wsd { decay_steps } => {
                (total_steps.saturating_sub(decay_steps), Decay::Cosine)
            }
            LrSchedule::Constant => {
                // No step comes after the largest number.
                let never = u32::MAX;
                return LearningRate {
                    peak_lr,
                    min_lr: peak_lr,
                    warmup_steps,
                    decay_start: never,
                    total_steps: never,
                    decay: Decay::Linear,
                };
            }
        };
        LearningRate { peak_lr, min_lr, warmup_steps, decay_start, total_steps, decay }
    }

    pub(super) fn validate(&self) -> Result<()> {
        // The device computes in f32.
        let rate = |value: f64| (value as f32).is_finite() && value >= 0.0;
        require("lr", self.peak_lr, rate(self.peak_lr), "finite in f32 and not below 0")?;
        let floor = rate(self.min_lr) && self.min_lr <= self.peak_lr;
        require("min_lr", self.min_lr, floor, "between 0 and the learning rate")?;
        require("steps", self.total_steps, self.total_steps >= 1, "at least 1")?;
        let warm = self.warmup_steps <= self.total_steps;
        require("warmup", self.warmup_steps, warm, "at most the number of steps")?;
        if let LrSchedule::Wsd { decay_steps } = self.schedule {
            let most = self.total_steps - self.warmup_steps;
            let rule = "at most the steps after the warm-up";
            require("decay_steps", decay_steps, decay_steps <= most, rule)?;
        }
        let beta = |value: f64| (0.0..1.0).contains(&value);
        require("beta1", self.beta1, beta(self.beta1), "at least 0 and below 1")?;
        require("beta2", self.beta2, beta(self.beta2), "at least 0 and below 1")?;
        require("eps", self.eps, self.eps.is_finite() && self.eps > 0.0, "finite and above 0")?;
        let decay = rate(f64::from(self.weight_decay));
        require("weight_decay", self.weight_decay, decay, "finite and not below 0")?;
        let clip = self.max_norm.is_finite() && self.max_norm > 0.0;
        require("clip", self.max_norm, clip, "finite and above 0")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adamw_has_the_defaults_of_transformers() {
        let OptimizerConfig { beta1, beta2, eps, .. } = OptimizerConfig::new(1e-3, 10);
        assert_eq!((beta1, beta2, eps), (0.9, 0.999, 1e-8));
    }

    #[test]
    fn every_schedule_warms_up_and_has_its_shape() {
        let rates = |schedule| {
            let (min_lr, warmup_steps) = (0.2, 2);
            let config = OptimizerConfig::new(1.0, 10);
            let config = OptimizerConfig { min_lr, warmup_steps, schedule, ..config };
            config.validate().unwrap();
            [0, 1, 2, 6, 8, 9, 10, 99].map(|step| (config.learning_rate(step) * 1e6).round() / 1e6)
        };
        let near = |p: f64| {
            let rate = 0.2 + 0.8 * 0.5 * (1.0 + (std::f64::consts::PI * p).cos());
            (rate * 1e6).round() / 1e6
        };
        let cosine = [0.5, 1.0, 1.0, 0.6, near(0.75), near(0.875), 0.2, 0.2];
        assert_eq!(rates(LrSchedule::Cosine), cosine);
        assert_eq!(rates(LrSchedule::Linear), [0.5, 1.0, 1.0, 0.6, 0.4, 0.3, 0.2, 0.2]);
        assert_eq!(rates(LrSchedule::Constant), [0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]);
        let wsd = LrSchedule::Wsd { decay_steps: 2 };
        assert_eq!(rates(wsd), [0.5, 1.0, 1.0, 1.0, 1.0, 0.6, 0.2, 0.2]);
    }

    #[test]
    fn a_rate_that_is_infinite_in_f32_is_refused() {
        let rate = |peak_lr| OptimizerConfig { min_lr: 0.0, ..OptimizerConfig::new(peak_lr, 10) };
        for beyond in [1e39, 1e300, f64::MAX, f64::INFINITY, f64::NAN, -1e-3] {
            let error = rate(beyond).validate().unwrap_err().to_string();
            assert!(error.starts_with("lr is "), "{error}");
        }
        rate(f64::from(f32::MAX)).validate().unwrap();
    }

    #[test]
    fn a_decay_fits_after_the_warm_up() {
        let schedule = LrSchedule::Wsd { decay_steps: 9 };
        let config = OptimizerConfig { warmup_steps: 2, schedule, ..OptimizerConfig::new(1.0, 10) };
        let error = config.validate().unwrap_err().to_string();
        assert!(error.starts_with("decay_steps is 9"), "{error}");
    }
}
