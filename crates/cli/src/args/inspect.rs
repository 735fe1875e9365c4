//! The command line of `inspect`.

use std::path::PathBuf;

use clap::Args;
use retrograph_finetune::{LoraConfig, Mode, ModelConfig, OptimizerConfig, TrainingConfig};

use super::{ModeArgument, PrecisionArguments};

#[derive(Debug, Args)]
pub(crate) struct InspectArguments {
    /// The directory of the model: config.json and safetensors files.
    #[arg(long, value_name = "DIR")]
    pub(crate) model: PathBuf,
    /// Which weights the planned run trains.
    #[arg(long, value_enum, default_value = "lora")]
    mode: ModeArgument,
    /// Rank of the LoRA matrices.
    #[arg(long, default_value_t = 8)]
    rank: usize,
    /// Sequences per step.
    #[arg(long, default_value_t = 4)]
    batch: usize,
    /// Tokens per sequence.
    #[arg(long, default_value_t = 64)]
    seq: usize,
    #[command(flatten)]
    precision: PrecisionArguments,
}

impl InspectArguments {
    /// The run that is planned. Neither schedule nor scale change what it takes.
    pub(crate) fn config(&self, model: ModelConfig) -> TrainingConfig {
        let mode = match self.mode {
            ModeArgument::Full => Mode::Full,
            ModeArgument::Lora => Mode::Lora(LoraConfig::new(self.rank, 1.0)),
        };
        let optimizer = OptimizerConfig::new(1e-4, 1);
        let precision = self.precision.precision();
        let (batch, seq) = (self.batch, self.seq);
        TrainingConfig { model, mode, precision, batch, seq, optimizer, seed: 0 }
    }
}
