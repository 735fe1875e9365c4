//! The command line.

mod bench;
mod cache;
mod chat;
mod data;
mod engine;
mod eval;
mod export;
mod generate;
mod inference;
mod inspect;
mod lora;
mod micro_batches;
mod output;
mod precision;
mod preference;
mod ranks;
mod sampling;
mod serve;
mod training;

use std::path::PathBuf;

use clap::builder::RangedU64ValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use retrograph_finetune::model::StepOptions;
use retrograph_finetune::{
    DType, DeviceChoice, GeneratorOptions, Mode, ModelConfig, ModelDirectory, OptimizerConfig,
    Precision, Preset, TrainerOptions, TrainingConfig, parse_dtype,
};
use retrograph_runtime::Policy;

use crate::config_file::Given;
use crate::error::CliError;

pub(crate) use bench::BenchArguments;
pub(crate) use cache::{CacheArguments, WorkerArguments};
pub(crate) use chat::ChatArguments;
pub(crate) use data::{DataArguments, HoldoutArguments};
pub(crate) use engine::EngineArguments;
pub(crate) use eval::EvalArguments;
pub(crate) use export::{
    DestinationArguments, ExportArguments, FormatArgument, MergeArguments, parse_size,
};
pub(crate) use generate::GenerateArguments;
pub(crate) use inference::InferenceArguments;
pub(crate) use inspect::InspectArguments;
pub(crate) use lora::LoraArguments;
pub(crate) use micro_batches::MicroBatchArguments;
pub(crate) use output::OutputArguments;
pub(crate) use precision::PrecisionArguments;
pub(crate) use preference::PreferenceArguments;
pub(crate) use ranks::RankArguments;
pub(crate) use sampling::SamplingArguments;
pub(crate) use serve::ServeArguments;
pub(crate) use training::{DEFAULT_EPOCHS, TrainingArguments};

/// Fine-tunes and runs transformers; each training step is one CUDA graph. Works without a GPU.
#[derive(Debug, Parser)]
#[command(name = "retrograph", version, about)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Train on a text or on examples. If an option is given twice, the last one counts.
    #[command(args_override_self = true)]
    Finetune(Box<FinetuneArguments>),
    /// Measure training steps or text generation by strategy and size.
    Bench(Box<BenchArguments>),
    /// Show the contents of a model directory and the memory of a run. Needs no device.
    Inspect(InspectArguments),
    /// Measure the loss of a model on a text or on examples.
    Eval(Box<EvalArguments>),
    /// Generate text with a Hugging Face model; each token is one graph replay.
    Generate(Box<GenerateArguments>),
    /// Chat with a model that has a chat template.
    Chat(Box<ChatArguments>),
    /// Serve a model and adapters over HTTP with an OpenAI-compatible API.
    Serve(Box<ServeArguments>),
    /// Merge a LoRA adapter into the weights of its base model.
    Merge(MergeArguments),
    /// Export a trained model as a Hugging Face directory or a GGUF file.
    Export(ExportArguments),
    /// Compile kernels for the process that started this one.
    #[command(hide = true)]
    CompileWorker(WorkerArguments),
}

/// Parses a number up to `max`.
fn up_to<T: TryFrom<u64> + Clone + Send + Sync + 'static>(max: u64) -> RangedU64ValueParser<T> {
    RangedU64ValueParser::new().range(..=max)
}

/// Parses a number from 1 to `max`.
fn one_to<T: TryFrom<u64> + Clone + Send + Sync + 'static>(max: u64) -> RangedU64ValueParser<T> {
    RangedU64ValueParser::new().range(1..=max)
}

/// Parses a maximum number of generated tokens.
fn token_limit() -> RangedU64ValueParser<usize> {
    one_to(GeneratorOptions::MAX_LENGTH as u64)
}

/// Default LoRA rank for a model directory.
pub(crate) const HUB_RANK: usize = 16;

/// Default of `--steps` without a model directory: enough for words to appear in the sample of the
/// tiny model.
const DEFAULT_STEPS: u32 = 250;
/// Default of `--seq` without a model directory.
pub(crate) const DEFAULT_SEQ: usize = 64;
/// Maximum default of `--seq`, and of `--max-length` of `chat` and `serve`, with a model directory.
const MAX_DEFAULT_SEQ: usize = 4096;
/// The shortest default that replaces a longer one that does not fit.
pub(crate) const MIN_DEFAULT_SEQ: usize = 64;

/// Returns the default length of sequences of the model `base`, if memory allows it.
pub(crate) fn default_seq(base: &ModelDirectory) -> usize {
    base.max_position_embeddings()
        .map_or(MAX_DEFAULT_SEQ, |positions| positions.min(MAX_DEFAULT_SEQ))
}

/// Returns `config` with the sequence length `given`, or the default of `base`, halved while the
/// activations have too many elements.
pub(crate) fn with_seq(
    config: TrainingConfig,
    given: Option<usize>,
    base: &ModelDirectory,
) -> TrainingConfig {
    let mut config = TrainingConfig { seq: given.unwrap_or_else(|| default_seq(base)), ..config };
    let shorter = |config: &TrainingConfig| config.seq / 2 >= MIN_DEFAULT_SEQ;
    while given.is_none() && shorter(&config) && config.validate_sizes().is_err() {
        config.seq /= 2;
    }
    config
}

/// Default of `--dtype` in training and evaluation: bf16 for a `real` model.
pub(crate) fn real_dtype(real: bool) -> DType {
    if real { DType::Bf16 } else { DType::F32 }
}

#[derive(Debug, Args)]
pub(crate) struct FinetuneArguments {
    /// Read flags from this TOML file: each key is a flag without dashes, such as
    /// `lora-targets = ["q", "v"]`. Flags on the command line take precedence. Each run writes such
    /// a file, run.toml, to its checkpoint directory.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// All flags, from the command line and from the file.
    #[arg(skip)]
    pub(crate) given: Given,
    #[command(flatten)]
    pub(crate) data: DataArguments,
    #[command(flatten)]
    pub(crate) data_use: HoldoutArguments,
    #[command(flatten)]
    pub(crate) preference: PreferenceArguments,
    /// Start from this model directory in Hugging Face format: config.json, safetensors files,
    /// tokenizer.json.
    #[arg(long = "model", value_name = "DIR", conflicts_with = "DimensionArguments")]
    pub(crate) base: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) model: ModelArguments,
    #[command(flatten)]
    pub(crate) training: TrainingArguments,
    #[command(flatten)]
    pub(crate) micro_batching: MicroBatchArguments,
    #[command(flatten)]
    pub(crate) ranks: RankArguments,
    /// Execution strategy.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) strategy: StrategyArgument,
    /// Device: auto (the first GPU, or the simulated driver if there is none), cuda:N, or sim.
    #[arg(long, default_value_t)]
    pub(crate) device: DeviceChoice,
    /// Write checkpoints to this directory: every --checkpoint-every steps, at the end, and when
    /// interrupted.
    #[arg(long, value_name = "DIR")]
    pub(crate) checkpoint: Option<PathBuf>,
    /// Steps between checkpoints; 0 writes one only at the end.
    #[arg(
        long,
        value_name = "STEPS",
        default_value_t = 100,
        requires = "checkpoint",
        conflicts_with = "discard"
    )]
    pub(crate) checkpoint_every: u32,
    /// Continue from the newest checkpoint, with its optimizer state and schedule.
    #[arg(long, requires = "checkpoint", conflicts_with_all = ["adapter", "discard"])]
    pub(crate) resume: bool,
    /// Also run every step eagerly on a copy of the model, and fail unless all bits are equal.
    #[arg(long)]
    pub(crate) verify: bool,
    #[command(flatten)]
    pub(crate) cache: CacheArguments,
    #[command(flatten)]
    pub(crate) output: OutputArguments,
}

/// A model with random weights.
#[derive(Debug, Args)]
pub(crate) struct DimensionArguments {
    /// Dimensions of a model with random weights: tiny, qwen2.5-0.5b or qwen2.5-1.5b.
    #[arg(long, default_value = "tiny")]
    pub(crate) preset: Preset,
    /// Number of layers, 1 to 512 [default: the preset's].
    #[arg(long)]
    layers: Option<usize>,
    /// Width of the residual stream [default: the preset's].
    #[arg(long)]
    hidden: Option<usize>,
    /// Width of the MLP [default: the preset's].
    #[arg(long)]
    intermediate: Option<usize>,
    /// Number of query heads, a divisor of --hidden [default: the preset's].
    #[arg(long)]
    heads: Option<usize>,
    /// Number of key and value heads, a divisor of --heads [default: the preset's].
    #[arg(long)]
    kv_heads: Option<usize>,
    /// Vocabulary size; tokens are bytes, and all bytes of the data must be below it [default: the
    /// preset's].
    #[arg(long)]
    vocab: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct ModelArguments {
    #[command(flatten)]
    pub(crate) dimensions: DimensionArguments,
    /// Weights to train [default: full; lora with --adapter].
    #[arg(long, value_enum)]
    mode: Option<ModeArgument>,
    #[command(flatten)]
    pub(crate) lora: LoraArguments,
    #[command(flatten)]
    precision: PrecisionArguments,
    /// Data type of linear-layer gradients and of their exchange between GPUs, for --mode full with
    /// --dtype bf16: f32, or bf16 to save memory and time. Accumulators are f32 in both cases;
    /// gradients accumulated over micro-batches are always f32.
    #[arg(long, value_name = "TYPE", value_parser = parse_dtype, default_value = "f32")]
    gradient_dtype: DType,
}

impl DimensionArguments {
    pub(crate) fn model(&self) -> ModelConfig {
        self.with_dimensions(self.preset.model())
    }

    /// Returns `model` with the dimensions that were given.
    pub(crate) fn with_dimensions(&self, model: ModelConfig) -> ModelConfig {
        ModelConfig {
            layers: self.layers.unwrap_or(model.layers),
            hidden: self.hidden.unwrap_or(model.hidden),
            intermediate: self.intermediate.unwrap_or(model.intermediate),
            heads: self.heads.unwrap_or(model.heads),
            kv_heads: self.kv_heads.unwrap_or(model.kv_heads),
            vocab: self.vocab.unwrap_or(model.vocab),
            ..model
        }
    }
}

impl ModelArguments {
    /// Returns the model `base`, or the one of the arguments without it.
    pub(crate) fn model(&self, base: Option<&ModelDirectory>) -> ModelConfig {
        base.map_or_else(|| self.dimensions.model(), |base| *base.config())
    }

    /// Returns the data types of the run; `dtype` is the default.
    pub(crate) fn precision(&self, dtype: DType) -> Precision {
        Precision { gradients: self.gradient_dtype, ..self.precision.precision(dtype) }
    }

    /// Fails if a LoRA option is given without `--mode lora`.
    pub(crate) fn require_mode(&self) -> Result<(), CliError> {
        self.lora.require_mode(self.mode)
    }

    /// Returns the weights to train; `rank` and `norms` are the defaults of LoRA.
    pub(crate) fn mode(&self, rank: usize, norms: bool) -> Mode {
        match self.mode.unwrap_or_default() {
            ModeArgument::Full => Mode::Full,
            ModeArgument::Lora => Mode::Lora(self.lora.config(rank, norms)),
        }
    }
}

impl FinetuneArguments {
    /// Returns the optimizer of a new run of `steps` steps, by default [`DEFAULT_STEPS`].
    pub(crate) fn optimizer(
        &self,
        base: Option<&ModelDirectory>,
        steps: Option<u32>,
    ) -> OptimizerConfig {
        let training = &self.training;
        let total = training.schedule_steps.or(steps).unwrap_or(DEFAULT_STEPS);
        let tiny = base.is_none() && self.model.dimensions.preset == Preset::Tiny;
        let lr = training.lr.unwrap_or(if tiny { 1e-2 } else { 1e-4 });
        training.given(&OptimizerConfig::new(lr, total))
    }

    /// Returns the configuration of a new run, of the model `base` if there is one. The number of
    /// steps may depend on the data; see [`FinetuneArguments::optimizer`].
    pub(crate) fn config(&self, base: Option<&ModelDirectory>) -> TrainingConfig {
        let training = &self.training;
        let optimizer = self.optimizer(base, training.steps);
        let rank = base.map_or(self.model.dimensions.preset.default_rank(), |_| HUB_RANK);
        TrainingConfig {
            model: self.model.model(base),
            mode: self.model.mode(rank, false),
            precision: self.model.precision(real_dtype(base.is_some())).of_base(base),
            batch: self.micro_batching.sequences(self.micro_batch()),
            seq: training.seq.unwrap_or(DEFAULT_SEQ),
            optimizer,
            seed: training.seed,
        }
    }

    /// Returns the options of the training step.
    pub(crate) fn step(&self) -> StepOptions {
        let RankArguments { ranks, bucket_size, .. } = self.ranks;
        let batch = self.micro_batch().div_ceil(ranks.world_size);
        let mut step = self.micro_batching.step(batch);
        step.preference = self.preference.config();
        step.packed = step.preference.is_none() && self.data.packs(self.data_use.buckets);
        step.ranks = ranks;
        step.bucket_bytes = bucket_size.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        step
    }

    /// Returns the sequences per forward and backward pass, over all ranks.
    fn micro_batch(&self) -> usize {
        self.preference.sequences(self.training.batch)
    }

    /// Returns the options of the trainer.
    pub(crate) fn options(&self) -> TrainerOptions {
        let mut options = TrainerOptions::default();
        options.build.policy = self.strategy.policy();
        options.verify = self.verify;
        options.step = self.step();
        options.lengths = self.data_use.buckets as usize;
        options
    }

    /// Fails if `ranks` cannot have equal parts of a batch.
    pub(crate) fn require_equal_parts(&self, ranks: usize) -> Result<(), CliError> {
        let batch = self.training.batch;
        if batch.is_multiple_of(ranks) {
            return Ok(());
        }
        Err(CliError::UnequalParts { batch, ranks })
    }

    /// Whether the run trains LoRA matrices instead of all weights.
    pub(crate) fn trains_lora(&self) -> bool {
        self.model.lora.adapter.is_some() || self.model.mode == Some(ModeArgument::Lora)
    }

    /// Fails if the strategy cannot run the collectives of several GPUs.
    pub(crate) fn require_strategy(&self) -> Result<(), CliError> {
        match self.strategy {
            StrategyArgument::Manual if self.ranks.ranks.world_size > 1 => {
                Err(CliError::ManualOfRanks)
            }
            _ => Ok(()),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModeArgument {
    /// All weights.
    #[default]
    Full,
    /// LoRA: low-rank updates of some projections.
    Lora,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum StrategyArgument {
    /// Choose the best one and say why.
    #[default]
    Auto,
    /// A CUDA graph built from the inferred edges.
    Manual,
    /// A CUDA graph captured from a stream.
    Capture,
    /// Individual launches without a graph.
    Eager,
}

impl StrategyArgument {
    /// Returns the policy of the runtime.
    pub(crate) fn policy(self) -> Policy {
        match self {
            Self::Auto => Policy::Auto,
            Self::Manual => Policy::Manual,
            Self::Capture => Policy::Capture,
            Self::Eager => Policy::Eager,
        }
    }
}

#[cfg(test)]
mod tests {
    use retrograph_finetune::LoraConfig;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Arguments::command().debug_assert();
    }

    #[test]
    fn values_without_an_effect_are_refused() {
        let serve = ["serve", "--model", "m"];
        let generate = ["generate", "--model", "m", "--prompt", "p"];
        for (command, option, value) in [
            (&serve[..], "--max-tokens", "0"),
            (&serve, "--name", ""),
            (&["chat", "--model", "m"], "--max-tokens", "0"),
            (&generate, "--max-tokens", "0"),
            (&generate, "--stop", ""),
            (&["bench"], "--steps", "0"),
            (&["finetune", "--text", "t", "--profile", "p"], "--profile-replays", "0"),
            (
                &["export", "--model", "m", "--out", "o", "--adapter-only"],
                "--max-shard-size",
                "1MB",
            ),
        ] {
            let line = [&["retrograph"], command, &[option, value]].concat();
            let error = Arguments::try_parse_from(line).unwrap_err().to_string();
            assert!(error.contains(option), "{error}");
        }
    }

    #[test]
    fn single_dimensions_override_the_preset() {
        let line = ["retrograph", "finetune", "--text", "x", "--layers", "3", "--mode", "lora"];
        let Command::Finetune(arguments) = Arguments::parse_from(line).command else {
            panic!("the command is finetune");
        };
        let config = arguments.config(None);
        assert_eq!(config.model.layers, 3);
        assert_eq!(config.model.hidden, Preset::Tiny.model().hidden);
        assert_eq!(config.mode, Mode::Lora(LoraConfig::new(8, 32.0)));
    }
}
