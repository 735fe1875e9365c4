//! What is trained and how: model dimensions, presets, mode, optimizer and schedule.
//!
//! Everything here is a plain value that is stored in checkpoints and compared on resume.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Tokens are bytes, so a vocabulary needs at least this many entries.
pub const BYTE_VOCABULARY: usize = 256;

/// Dimensions of a decoder-only transformer of the Qwen2 architecture, with tied embeddings.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelConfig {
    /// Entries of the token table.
    pub vocab: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Number of layers.
    pub layers: usize,
    /// Width of the gated MLP.
    pub intermediate: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; each serves `heads / kv_heads` query heads.
    pub kv_heads: usize,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// Added to the mean square in every RMSNorm, forward and backward alike.
    pub rms_norm_eps: f32,
}

impl ModelConfig {
    /// Width of one head.
    pub fn head_dim(&self) -> usize {
        self.hidden / self.heads.max(1)
    }

    /// Width of all key heads together, which is also that of the value heads.
    pub fn kv_width(&self) -> usize {
        self.kv_heads * self.head_dim()
    }

    /// Checks that the dimensions fit each other.
    pub fn validate(&self) -> Result<()> {
        require("vocab", self.vocab, self.vocab >= BYTE_VOCABULARY, "at least 256, one per byte")?;
        require("layers", self.layers, self.layers >= 1, "at least 1")?;
        require("intermediate", self.intermediate, self.intermediate >= 1, "at least 1")?;
        require("heads", self.heads, self.heads >= 1, "at least 1")?;
        let divides = self.hidden >= self.heads && self.hidden.is_multiple_of(self.heads);
        require("hidden", self.hidden, divides, "a multiple of the number of heads")?;
        let even = self.head_dim().is_multiple_of(2);
        require("hidden", self.hidden, even, "such that hidden / heads is even, for rotary pairs")?;
        let grouped = self.kv_heads >= 1 && self.heads.is_multiple_of(self.kv_heads);
        require("kv_heads", self.kv_heads, grouped, "a divisor of the number of heads")?;
        let theta = self.rope_theta.is_finite() && self.rope_theta > 1.0;
        require("rope_theta", self.rope_theta, theta, "finite and above 1")?;
        let eps = self.rms_norm_eps.is_finite() && self.rms_norm_eps > 0.0;
        require("rms_norm_eps", self.rms_norm_eps, eps, "finite and above 0")
    }
}

/// Dimensions with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// Two layers of width 64 over bytes: trains on the simulated driver in seconds.
    Tiny,
    /// The dimensions of Qwen2.5-0.5B.
    Qwen25Half,
    /// The dimensions of Qwen2.5-1.5B.
    Qwen25OneAndHalf,
}

impl Preset {
    /// Every preset.
    pub const ALL: [Self; 3] = [Self::Tiny, Self::Qwen25Half, Self::Qwen25OneAndHalf];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tiny => "tiny",
            Self::Qwen25Half => "qwen2.5-0.5b",
            Self::Qwen25OneAndHalf => "qwen2.5-1.5b",
        }
    }

    /// The dimensions.
    pub fn model(self) -> ModelConfig {
        let qwen = ModelConfig {
            vocab: 151_936,
            hidden: 896,
            layers: 24,
            intermediate: 4864,
            heads: 14,
            kv_heads: 2,
            rope_theta: 1e6,
            rms_norm_eps: 1e-6,
        };
        match self {
            Self::Tiny => ModelConfig {
                vocab: BYTE_VOCABULARY,
                hidden: 64,
                layers: 2,
                intermediate: 176,
                heads: 4,
                rope_theta: 1e4,
                ..qwen
            },
            Self::Qwen25Half => qwen,
            Self::Qwen25OneAndHalf => {
                ModelConfig { hidden: 1536, layers: 28, intermediate: 8960, heads: 12, ..qwen }
            }
        }
    }

    /// The rank of the LoRA matrices when none is asked for.
    pub fn default_rank(self) -> usize {
        if self == Self::Tiny { 8 } else { 16 }
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Preset {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|preset| preset.name() == text).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|preset| preset.name()).collect();
            format!("`{text}` is not a preset; known are {}", names.join(", "))
        })
    }
}

/// Which weights are trained.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Every weight.
    Full,
    /// The base is frozen; low-rank updates `alpha / rank · B · A` on the query and value
    /// projections are trained, and both norms of each layer.
    Lora(LoraConfig),
}

impl Mode {
    /// The LoRA parameters, if this is LoRA.
    pub fn lora(&self) -> Option<LoraConfig> {
        match self {
            Self::Full => None,
            Self::Lora(lora) => Some(*lora),
        }
    }

    /// Whether the base weights are trained.
    pub fn is_full(&self) -> bool {
        *self == Self::Full
    }
}

/// Rank and scale of the low-rank updates.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoraConfig {
    /// Inner dimension.
    pub rank: usize,
    /// The update is scaled by `alpha / rank`.
    pub alpha: f32,
}

impl LoraConfig {
    /// What the product of the two matrices is multiplied by.
    pub fn scale(&self) -> f32 {
        self.alpha / self.rank as f32
    }
}

/// AdamW with decoupled decay, global-norm clipping, linear warm-up and a cosine to `min_lr`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct OptimizerConfig {
    /// Learning rate after the warm-up.
    pub peak_lr: f64,
    /// Learning rate at the end of the cosine and after it.
    pub min_lr: f64,
    /// Steps of linear warm-up.
    pub warmup_steps: u32,
    /// Step at which the cosine ends.
    pub total_steps: u32,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub eps: f32,
    /// Decoupled decay of matrices; norms and biases do not decay.
    pub weight_decay: f32,
    /// Gradients are scaled so that their global norm is at most this.
    pub max_norm: f32,
}

impl OptimizerConfig {
    /// The defaults for a run of `total_steps` with the given peak: a tenth of it is warm-up.
    pub fn new(peak_lr: f64, total_steps: u32) -> Self {
        Self {
            peak_lr,
            min_lr: peak_lr / 10.0,
            warmup_steps: total_steps / 10,
            total_steps,
            beta1: 0.9,
            beta2: 0.95,
            eps: 1e-8,
            weight_decay: 0.01,
            max_norm: 1.0,
        }
    }

    /// The learning rate of `step`, counted from 0, for showing it. The device computes its own.
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

    fn validate(&self) -> Result<()> {
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

/// All that determines a run, apart from the text and the device.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrainingConfig {
    /// The model.
    pub model: ModelConfig,
    /// Which weights are trained.
    pub mode: Mode,
    /// Sequences per step.
    pub batch: usize,
    /// Tokens per sequence.
    pub seq: usize,
    /// Optimizer and schedule.
    pub optimizer: OptimizerConfig,
    /// Seed of the initial weights and of the batches.
    pub seed: u64,
}

impl TrainingConfig {
    /// Tokens per step.
    pub fn rows(&self) -> usize {
        self.batch * self.seq
    }

    /// Checks every value and that the sizes fit the kernels' 32-bit dimensions.
    pub fn validate(&self) -> Result<()> {
        self.model.validate()?;
        require("batch", self.batch, self.batch >= 1, "at least 1")?;
        require("seq", self.seq, self.seq >= 1, "at least 1")?;
        let rows = self.batch.saturating_mul(self.seq);
        let widest = self.model.vocab.max(self.model.intermediate).max(self.model.hidden);
        let scores = rows.saturating_mul(self.model.heads).saturating_mul(self.seq);
        let largest = rows.saturating_mul(widest).max(scores);
        let fits = u32::try_from(largest).is_ok();
        require(
            "batch x seq",
            rows,
            fits,
            "such that every activation has less than 2^32 elements",
        )?;
        if let Mode::Lora(lora) = self.mode {
            require("rank", lora.rank, lora.rank >= 1, "at least 1")?;
            require("alpha", lora.alpha, lora.alpha.is_finite(), "finite")?;
        }
        self.optimizer.validate()
    }
}

fn require(field: &'static str, value: impl fmt::Display, holds: bool, rule: &str) -> Result<()> {
    if holds {
        return Ok(());
    }
    Err(Error::InvalidConfig { field, value: value.to_string(), rule: rule.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> TrainingConfig {
        TrainingConfig {
            model: Preset::Tiny.model(),
            mode: Mode::Full,
            batch: 4,
            seq: 32,
            optimizer: OptimizerConfig::new(1e-3, 100),
            seed: 0,
        }
    }

    #[test]
    fn presets_are_valid_and_found_by_name() {
        for preset in Preset::ALL {
            preset.model().validate().unwrap();
            assert_eq!(preset.name().parse::<Preset>().unwrap(), preset);
        }
        assert!("qwen".parse::<Preset>().unwrap_err().contains("tiny"));
    }

    #[test]
    fn the_field_that_is_wrong_is_named() {
        let mut wrong = config();
        wrong.model.kv_heads = 3;
        assert!(wrong.validate().unwrap_err().to_string().contains("kv_heads"));
        let mut wrong = config();
        wrong.optimizer.peak_lr = f64::NAN;
        assert!(wrong.validate().unwrap_err().to_string().contains("lr"));
        let mut wrong = config();
        (wrong.batch, wrong.seq) = (1 << 20, 1 << 20);
        assert!(wrong.validate().unwrap_err().to_string().contains("batch x seq"));
    }

    #[test]
    fn configurations_survive_json() {
        let before =
            TrainingConfig { mode: Mode::Lora(LoraConfig { rank: 8, alpha: 32.0 }), ..config() };
        let text = serde_json::to_string(&before).unwrap();
        assert_eq!(serde_json::from_str::<TrainingConfig>(&text).unwrap(), before);
    }
}
