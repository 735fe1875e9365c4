//! The arguments of `retrograph inspect`.

use std::path::{Path, PathBuf};

use clap::Args;
use retrograph_finetune::{Mode, ModelDirectory, OptimizerConfig, TrainingConfig};

use crate::error::CliError;

use super::{
    HUB_RANK, LoraArguments, MicroBatchArguments, ModeArgument, PrecisionArguments, real_dtype,
    with_seq,
};

#[derive(Debug, Args)]
pub(crate) struct InspectArguments {
    /// Model directory in Hugging Face format: config.json and safetensors files.
    #[arg(long, value_name = "DIR")]
    pub(crate) model: PathBuf,
    /// Weights that the planned run trains.
    #[arg(long, value_enum, default_value = "lora")]
    mode: ModeArgument,
    #[command(flatten)]
    lora: LoraArguments,
    /// Sequences per forward and backward pass, at least 1.
    #[arg(long, default_value_t = 4)]
    pub(crate) batch: usize,
    /// Tokens per sequence, at least 1 [default: the model's context, at most 4096].
    #[arg(long)]
    seq: Option<usize>,
    #[command(flatten)]
    precision: PrecisionArguments,
    #[command(flatten)]
    pub(crate) micro_batching: MicroBatchArguments,
}

impl InspectArguments {
    /// Fails if a LoRA option is given, but all weights are trained.
    pub(crate) fn require_mode(&self) -> Result<(), CliError> {
        self.lora.require_mode(Some(self.mode))
    }

    /// The adapter that the run starts from, if any.
    pub(crate) fn adapter(&self) -> Option<&Path> {
        self.lora.adapter.as_deref()
    }

    /// Returns the planned run. The schedule does not change its memory.
    pub(crate) fn config(&self, base: &ModelDirectory) -> TrainingConfig {
        let model = *base.config();
        let mode = match self.mode {
            ModeArgument::Full => Mode::Full,
            ModeArgument::Lora => Mode::Lora(self.lora.config(HUB_RANK, false)),
        };
        let optimizer = OptimizerConfig::new(1e-4, 1);
        let precision = self.precision.precision(real_dtype(true));
        let pass = TrainingConfig {
            model,
            mode,
            precision,
            batch: self.batch,
            seq: 0,
            optimizer,
            seed: 0,
        };
        let batch = self.micro_batching.sequences(self.batch);
        TrainingConfig { batch, ..with_seq(pass, self.seq, base) }
    }
}
