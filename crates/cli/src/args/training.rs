//! The arguments of optimizer, schedule and batches.

use clap::Args;
use retrograph_finetune::OptimizerConfig;

#[derive(Debug, Args)]
pub(crate) struct TrainingArguments {
    /// Train up to this step [default: 250, or as far as the schedule of a resumed run].
    #[arg(long)]
    pub(crate) steps: Option<u32>,
    /// The step at which the schedule ends [default: --steps].
    #[arg(long, value_name = "STEPS")]
    pub(crate) schedule_steps: Option<u32>,
    /// Steps of linear warm-up [default: a tenth of the schedule].
    #[arg(long, value_name = "STEPS")]
    pub(crate) warmup: Option<u32>,
    /// Sequences per step.
    #[arg(long, default_value_t = 4)]
    pub(crate) batch: usize,
    /// Tokens per sequence.
    #[arg(long, default_value_t = 64)]
    pub(crate) seq: usize,
    /// Learning rate at the end of the warm-up [default: 1e-2 for tiny, else 1e-4].
    #[arg(long)]
    pub(crate) lr: Option<f64>,
    /// Learning rate at the end of the schedule [default: a tenth of --lr].
    #[arg(long)]
    pub(crate) min_lr: Option<f64>,
    /// Decoupled decay of matrices [default: 0.01].
    #[arg(long)]
    pub(crate) weight_decay: Option<f32>,
    /// Decay of AdamW's first moment [default: 0.9].
    #[arg(long, value_name = "DECAY")]
    pub(crate) beta1: Option<f64>,
    /// Decay of AdamW's second moment [default: 0.999].
    #[arg(long, value_name = "DECAY")]
    pub(crate) beta2: Option<f64>,
    /// Added to the root of AdamW's second moment [default: 1e-8].
    #[arg(long, value_name = "EPSILON")]
    pub(crate) eps: Option<f32>,
    /// The largest norm of all gradients together [default: 1].
    #[arg(long)]
    pub(crate) clip: Option<f32>,
    /// Seed of weights, batches and generated text.
    #[arg(long, default_value_t = 42)]
    pub(crate) seed: u64,
}

impl TrainingArguments {
    /// The optimizer with what was given on the command line, and the rest from `defaults`.
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
