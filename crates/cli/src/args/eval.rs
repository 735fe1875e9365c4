//! The arguments of `retrograph eval`.

use std::path::PathBuf;

use clap::Args;
use retrograph_finetune::{DeviceChoice, OptimizerConfig, TrainingConfig};

use super::{CacheArguments, ModelArguments};

#[derive(Debug, Args)]
pub(crate) struct EvalArguments {
    /// The text whose loss is measured, as bytes: one that the model was not trained on.
    #[arg(long, value_name = "FILE")]
    pub(crate) text: PathBuf,
    /// Take the model from the newest checkpoint of this directory, and not from other arguments.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["adapter", "mode"])]
    pub(crate) checkpoint: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) model: ModelArguments,
    /// Sequences at a time.
    #[arg(long, default_value_t = 4)]
    batch: usize,
    /// Tokens per sequence; no token sees those of an earlier one.
    #[arg(long, default_value_t = 64)]
    seq: usize,
    /// Seed of the weights of the base model.
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// auto, cuda:N, or sim.
    #[arg(long, default_value_t)]
    pub(crate) device: DeviceChoice,
    #[command(flatten)]
    pub(crate) cache: CacheArguments,
    /// Write the result as JSON.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

impl EvalArguments {
    /// The configuration of a model that no checkpoint describes.
    pub(crate) fn config(&self) -> TrainingConfig {
        self.sized(TrainingConfig {
            model: self.model.model(),
            mode: self.model.mode(false),
            batch: self.batch,
            seq: self.seq,
            optimizer: OptimizerConfig::new(0.0, 1),
            seed: self.seed,
        })
    }

    /// `config` with the batch and sequence that are asked for.
    pub(crate) fn sized(&self, config: TrainingConfig) -> TrainingConfig {
        TrainingConfig { batch: self.batch, seq: self.seq, ..config }
    }
}
