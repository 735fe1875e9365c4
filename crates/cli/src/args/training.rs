//! The arguments for optimizer, schedule and batches.

use clap::Args;
use retrograph_finetune::OptimizerConfig;

#[derive(Debug, Args)]
pub(crate) struct TrainingArguments {
    /// Number of training steps, including those before a --resume [default: 250, or the end of
    /// the resumed schedule].
    #[arg(long)]
    pub(crate) steps: Option<u32>,
    /// Step at which the learning-rate schedule ends, at least 1 [default: --steps].
    #[arg(long, value_name = "STEPS")]
    pub(crate) schedule_steps: Option<u32>,
    /// Steps of linear learning-rate warm-up [default: a tenth of --schedule-steps].
    #[arg(long, value_name = "STEPS")]
    pub(crate) warmup: Option<u32>,
    /// Sequences per step, at least 1.
    #[arg(long, default_value_t = 4)]
    pub(crate) batch: usize,
    /// Tokens per sequence, at least 1.
    #[arg(long, default_value_t = 64)]
    pub(crate) seq: usize,
    /// Peak learning rate, at least 0 [default: 1e-2 for --preset tiny, else 1e-4].
    #[arg(long)]
    pub(crate) lr: Option<f64>,
    /// Learning rate at the end of the cosine schedule, 0 to --lr [default: a tenth of --lr].
    #[arg(long)]
    pub(crate) min_lr: Option<f64>,
    /// AdamW's decoupled weight decay of matrices, at least 0 [default: 0.01].
    #[arg(long)]
    pub(crate) weight_decay: Option<f32>,
    /// AdamW's beta1, at least 0 and below 1 [default: 0.9].
    #[arg(long, value_name = "DECAY")]
    pub(crate) beta1: Option<f64>,
    /// AdamW's beta2, at least 0 and below 1 [default: 0.999].
    #[arg(long, value_name = "DECAY")]
    pub(crate) beta2: Option<f64>,
    /// AdamW's epsilon, above 0 [default: 1e-8].
    #[arg(long, value_name = "EPSILON")]
    pub(crate) eps: Option<f32>,
    /// Maximum global gradient norm, above 0; larger gradients are scaled down [default: 1].
    #[arg(long)]
    pub(crate) clip: Option<f32>,
    /// Seed of initial weights, batches, dropout and sample text.
    #[arg(long, default_value_t = 42)]
    pub(crate) seed: u64,
}

impl TrainingArguments {
    /// Returns the optimizer of the command line, with `defaults` for the rest.
    pub(crate) fn given(&self, defaults: &OptimizerConfig) -> OptimizerConfig {
        OptimizerConfig {
            peak_lr: self.lr.unwrap_or(defaults.peak_lr),
            min_lr: self.min_lr.unwrap_or(defaults.min_lr),
            warmup_steps: self.warmup.unwrap_or(defaults.warmup_steps),
            total_steps: self.schedule_steps.unwrap_or(defaults.total_steps),
            beta1: self.beta1.unwrap_or(defaults.beta1),
            beta2: self.beta2.unwrap_or(defaults.beta2),
            eps: self.eps.unwrap_or(defaults.eps),
            weight_decay: self.weight_decay.unwrap_or(defaults.weight_decay),
            max_norm: self.clip.unwrap_or(defaults.max_norm),
        }
    }
}
