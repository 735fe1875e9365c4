//! The arguments of `retrograph eval`.

use std::path::PathBuf;

use clap::Args;
use retrograph_finetune::{DeviceChoice, Mode, ModelDirectory, OptimizerConfig, TrainingConfig};

use super::{
    CacheArguments, DEFAULT_SEQ, DataArguments, DimensionArguments, PrecisionArguments, real_dtype,
    with_seq,
};

#[derive(Debug, Args)]
pub(crate) struct EvalArguments {
    #[command(flatten)]
    pub(crate) data: DataArguments,
    /// Model directory in Hugging Face format: config.json, safetensors files, tokenizer.json.
    #[arg(long = "model", value_name = "DIR", conflicts_with = "DimensionArguments")]
    pub(crate) base: Option<PathBuf>,
    /// Evaluate the newest checkpoint in this directory.
    #[arg(
        long,
        value_name = "DIR",
        conflicts_with_all = ["DimensionArguments", "PrecisionArguments", "adapter", "seed"]
    )]
    pub(crate) checkpoint: Option<PathBuf>,
    /// Use the checkpoint with the lowest held-out loss, from a run with --save-best.
    #[arg(long, requires = "checkpoint")]
    pub(crate) best: bool,
    /// Evaluate the model with this LoRA adapter, a directory in PEFT format.
    #[arg(long, value_name = "DIR")]
    pub(crate) adapter: Option<PathBuf>,
    #[command(flatten)]
    dimensions: DimensionArguments,
    #[command(flatten)]
    precision: PrecisionArguments,
    /// Sequences per batch, at least 1.
    #[arg(long, default_value_t = 4)]
    batch: usize,
    /// Tokens per sequence, at least 1. Attention does not cross sequences [default: with --model,
    /// the model's context, at most 4096; else 64].
    #[arg(long)]
    seq: Option<usize>,
    /// Seed of the weights that neither --model nor --checkpoint provides.
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// Device: auto (the first GPU, or the simulated driver if there is none), cuda:N, or sim.
    #[arg(long, default_value_t)]
    pub(crate) device: DeviceChoice,
    #[command(flatten)]
    pub(crate) cache: CacheArguments,
    /// Write the result to this JSON file.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

impl EvalArguments {
    /// Returns the configuration without a checkpoint; the model is `base` if given.
    pub(crate) fn config(&self, base: Option<&ModelDirectory>) -> TrainingConfig {
        let config = TrainingConfig {
            model: base.map_or_else(|| self.dimensions.model(), |base| *base.config()),
            mode: Mode::Frozen,
            precision: self.precision.precision(real_dtype(base.is_some())),
            batch: self.batch,
            seq: DEFAULT_SEQ,
            optimizer: OptimizerConfig::new(0.0, 1),
            seed: self.seed,
        };
        self.sized(config, base)
    }

    /// Sets the batch and sequence length of the arguments in `config`; `base` is the model
    /// directory, if there is one.
    pub(crate) fn sized(
        &self,
        config: TrainingConfig,
        base: Option<&ModelDirectory>,
    ) -> TrainingConfig {
        // Few batches do not save the time that uploading two-part copies takes.
        let precision = config.precision.of_base(base).without_two_term_copies();
        let config = TrainingConfig { batch: self.batch, precision, ..config };
        match base {
            Some(base) => with_seq(config, self.seq, base),
            None => TrainingConfig { seq: self.seq.unwrap_or(DEFAULT_SEQ), ..config },
        }
    }
}
