//! Configuration of optimizer and schedule.

use serde::{Deserialize, Serialize};

use super::check::require;
use crate::error::Result;

/// AdamW with decoupled weight decay, global-norm clipping, linear warm-up and cosine decay to
/// `min_lr`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct OptimizerConfig {
    /// Learning rate after the warm-up.
    pub peak_lr: f64,
    /// Learning rate at the end of the cosine decay and after it.
    pub min_lr: f64,
    /// Steps of linear warm-up.
    pub warmup_steps: u32,
    /// Step at which the cosine decay ends.
    pub total_steps: u32,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub eps: f32,
    /// Decoupled decay of matrices; norms and biases do not decay.
    pub weight_decay: f32,
    /// Maximum global norm of the gradients; larger ones are scaled down.
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
        let (step, warmup) = (f64::from(step), f64::from(self.warmup_steps));
        if step < warmup {
            return self.peak_lr * (step + 1.0) / warmup;
        }
        let span = (f64::from(self.total_steps) - warmup).max(1.0);
        let progress = ((step - warmup) / span).min(1.0);
        let cosine = (1.0 + (std::f64::consts::PI * progress).cos()) / 2.0;
        self.min_lr + (self.peak_lr - self.min_lr) * cosine
    }

    pub(super) fn validate(&self) -> Result<()> {
        let rate = |value: f64| value.is_finite() && value >= 0.0;
        require("lr", self.peak_lr, rate(self.peak_lr), "finite and not below 0")?;
        let floor = rate(self.min_lr) && self.min_lr <= self.peak_lr;
        require("min_lr", self.min_lr, floor, "between 0 and the learning rate")?;
        require("steps", self.total_steps, self.total_steps >= 1, "at least 1")?;
        let warm = self.warmup_steps <= self.total_steps;
        require("warmup", self.warmup_steps, warm, "at most the number of steps")?;
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
}
