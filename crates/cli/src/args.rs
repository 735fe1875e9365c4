//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use retrograph_finetune::bench::Contender;
use retrograph_finetune::{
    DeviceChoice, LoraConfig, Mode, ModelConfig, OptimizerConfig, Preset, TrainingConfig,
};
use retrograph_runtime::Policy;

/// Train a transformer with its whole step as one replayed CUDA graph, with or without a GPU.
#[derive(Debug, Parser)]
#[command(name = "retrograph", version, about)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Train on a text. Of an argument that is given twice, the last counts.
    #[command(args_override_self = true)]
    Finetune(Box<FinetuneArguments>),
    /// Measure the training step by strategy and size.
    Bench(BenchArguments),
}

/// Steps when none are asked for: enough for words to appear in the sample of the tiny model.
const DEFAULT_STEPS: u32 = 250;

#[derive(Debug, Args)]
pub(crate) struct FinetuneArguments {
    /// The text to train on, as bytes.
    #[arg(long, value_name = "FILE")]
    pub(crate) text: PathBuf,
    #[command(flatten)]
    pub(crate) model: ModelArguments,
    #[command(flatten)]
    pub(crate) training: TrainingArguments,
    /// How the step reaches the device.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) strategy: StrategyArgument,
    /// auto, cuda:N, or sim.
    #[arg(long, default_value_t)]
    pub(crate) device: DeviceChoice,
    /// Write checkpoints to this directory, at the end and when interrupted.
    #[arg(long, value_name = "DIR")]
    pub(crate) checkpoint: Option<PathBuf>,
    /// Steps between checkpoints; 0 for one at the end only.
    #[arg(long, value_name = "STEPS", default_value_t = 100, requires = "checkpoint")]
    pub(crate) checkpoint_every: u32,
    /// Continue from the newest checkpoint, with its optimizer and schedule.
    #[arg(long, requires = "checkpoint")]
    pub(crate) resume: bool,
    /// Run the eager step beside every step on copies and compare all bits.
    #[arg(long)]
    pub(crate) verify: bool,
    #[command(flatten)]
    pub(crate) output: OutputArguments,
}

#[derive(Debug, Args)]
pub(crate) struct OutputArguments {
    /// Write a report as JSON.
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Draw the loss as SVG.
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
    /// Print every operation and buffer of the step.
    #[arg(long)]
    pub(crate) explain: bool,
    /// Write the step as a Graphviz drawing.
    #[arg(long, value_name = "FILE")]
    pub(crate) dot: Option<PathBuf>,
    /// Bytes of text to generate at the end; 0 for none.
    #[arg(long, value_name = "BYTES", default_value_t = 160)]
    pub(crate) sample: usize,
    /// What the generated text continues; by default the beginning of the text.
    #[arg(long, value_name = "TEXT")]
    pub(crate) prompt: Option<String>,
    /// Randomness of the generated text; 0 takes the likeliest byte.
    #[arg(long, default_value_t = 0.6)]
    pub(crate) temperature: f32,
}

#[derive(Debug, Args)]
pub(crate) struct ModelArguments {
    /// Dimensions of the model: tiny, qwen2.5-0.5b or qwen2.5-1.5b.
    #[arg(long, default_value = "tiny")]
    pub(crate) preset: Preset,
    /// Number of layers.
    #[arg(long)]
    layers: Option<usize>,
    /// Width of the residual stream.
    #[arg(long)]
    hidden: Option<usize>,
    /// Width of the MLP.
    #[arg(long)]
    intermediate: Option<usize>,
    /// Query heads.
    #[arg(long)]
    heads: Option<usize>,
    /// Key and value heads.
    #[arg(long)]
    kv_heads: Option<usize>,
    /// Entries of the token table.
    #[arg(long)]
    vocab: Option<usize>,
    /// Which weights are trained.
    #[arg(long, value_enum, default_value_t)]
    mode: ModeArgument,
    /// Rank of the LoRA matrices.
    #[arg(long)]
    rank: Option<usize>,
    /// The LoRA update is scaled by alpha / rank.
    #[arg(long, default_value_t = 32.0)]
    alpha: f32,
}

impl ModelArguments {
    pub(crate) fn model(&self) -> ModelConfig {
        let preset = self.preset.model();
        ModelConfig {
            layers: self.layers.unwrap_or(preset.layers),
            hidden: self.hidden.unwrap_or(preset.hidden),
            intermediate: self.intermediate.unwrap_or(preset.intermediate),
            heads: self.heads.unwrap_or(preset.heads),
            kv_heads: self.kv_heads.unwrap_or(preset.kv_heads),
            vocab: self.vocab.unwrap_or(preset.vocab),
            ..preset
        }
    }

    pub(crate) fn mode(&self) -> Mode {
        let rank = self.rank.unwrap_or_else(|| self.preset.default_rank());
        match self.mode {
            ModeArgument::Full => Mode::Full,
            ModeArgument::Lora => Mode::Lora(LoraConfig { rank, alpha: self.alpha }),
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct TrainingArguments {
    /// Train up to this step [default: 250, or as far as the schedule of a resumed run].
    #[arg(long)]
    pub(crate) steps: Option<u32>,
    /// The step at which the schedule ends [default: --steps].
    #[arg(long, value_name = "STEPS")]
    schedule_steps: Option<u32>,
    /// Steps of linear warm-up [default: a tenth of the schedule].
    #[arg(long, value_name = "STEPS")]
    warmup: Option<u32>,
    /// Sequences per step.
    #[arg(long, default_value_t = 4)]
    batch: usize,
    /// Tokens per sequence.
    #[arg(long, default_value_t = 64)]
    seq: usize,
    /// Learning rate at the end of the warm-up [default: 1e-2 for tiny, else 1e-4].
    #[arg(long)]
    lr: Option<f64>,
    /// Learning rate at the end of the schedule [default: a tenth of --lr].
    #[arg(long)]
    min_lr: Option<f64>,
    /// Decoupled decay of matrices [default: 0.01].
    #[arg(long)]
    weight_decay: Option<f32>,
    /// The largest norm of all gradients together [default: 1].
    #[arg(long)]
    clip: Option<f32>,
    /// Seed of weights, batches and generated text.
    #[arg(long, default_value_t = 42)]
    seed: u64,
}

impl TrainingArguments {
    /// The optimizer with what was given on the command line, and the rest from `defaults`.
    pub(crate) fn given(&self, defaults: &OptimizerConfig) -> OptimizerConfig {
        OptimizerConfig {
            peak_lr: self.lr.unwrap_or(defaults.peak_lr),
            min_lr: self.min_lr.unwrap_or(defaults.min_lr),
            warmup_steps: self.warmup.unwrap_or(defaults.warmup_steps),
            total_steps: self.schedule_steps.unwrap_or(defaults.total_steps),
            weight_decay: self.weight_decay.unwrap_or(defaults.weight_decay),
            max_norm: self.clip.unwrap_or(defaults.max_norm),
            ..*defaults
        }
    }
}

impl FinetuneArguments {
    /// The configuration of a new run.
    pub(crate) fn config(&self) -> TrainingConfig {
        let training = &self.training;
        let steps = training.steps.unwrap_or(DEFAULT_STEPS);
        let total = training.schedule_steps.unwrap_or(steps);
        let tiny = self.model.preset == Preset::Tiny;
        let lr = training.lr.unwrap_or(if tiny { 1e-2 } else { 1e-4 });
        let optimizer = training.given(&OptimizerConfig::new(lr, total));
        TrainingConfig {
            model: self.model.model(),
            mode: self.model.mode(),
            batch: training.batch,
            seq: training.seq,
            optimizer,
            seed: training.seed,
        }
    }

    /// The strategy as the runtime knows it.
    pub(crate) fn policy(&self) -> Policy {
        match self.strategy {
            StrategyArgument::Auto => Policy::Auto,
            StrategyArgument::Manual => Policy::Manual,
            StrategyArgument::Capture => Policy::Capture,
            StrategyArgument::Eager => Policy::Eager,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModeArgument {
    /// Every weight.
    #[default]
    Full,
    /// Low-rank updates of the query and value projections, and the norms of the layers.
    Lora,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum StrategyArgument {
    /// The program chooses and says why.
    #[default]
    Auto,
    /// A graph built from the inferred edges.
    Manual,
    /// A graph captured from the launches of a stream.
    Capture,
    /// No graph.
    Eager,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArguments {
    #[command(flatten)]
    pub(crate) model: ModelArguments,
    /// auto, cuda:N, or sim.
    #[arg(long, default_value_t)]
    pub(crate) device: DeviceChoice,
    /// Batch x sequence of each size.
    #[arg(long, value_delimiter = ',', default_value = "1x32,1x128,4x128")]
    pub(crate) sizes: Vec<Size>,
    /// What is measured: eager, capture, manual, manual-chain.
    #[arg(long, value_delimiter = ',', default_value = "eager,capture,manual,manual-chain")]
    pub(crate) strategies: Vec<Contender>,
    /// Steps that are measured.
    #[arg(long, default_value_t = 30)]
    pub(crate) steps: u32,
    /// Steps before the measurement.
    #[arg(long, default_value_t = 5)]
    pub(crate) warm_up: u32,
    /// Write the results as JSON.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

impl BenchArguments {
    /// The configuration, with the first size. The rate is so small that nothing diverges.
    pub(crate) fn config(&self) -> TrainingConfig {
        TrainingConfig {
            model: self.model.model(),
            mode: self.model.mode(),
            batch: 1,
            seq: 1,
            optimizer: OptimizerConfig::new(1e-7, 1000),
            seed: 0,
        }
    }
}

/// Batch and sequence, written as `4x128`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) [usize; 2]);

impl std::str::FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text
            .split_once('x')
            .and_then(|(batch, seq)| Some(Self([batch.parse().ok()?, seq.parse().ok()?])));
        parsed.ok_or_else(|| format!("`{text}` is not a size; write batch x sequence as 4x128"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Arguments::command().debug_assert();
    }

    #[test]
    fn single_dimensions_override_the_preset() {
        let line = ["retrograph", "finetune", "--text", "x", "--layers", "3", "--mode", "lora"];
        let Command::Finetune(arguments) = Arguments::parse_from(line).command else {
            panic!("the line asks for finetune");
        };
        let config = arguments.config();
        assert_eq!(config.model.layers, 3);
        assert_eq!(config.model.hidden, Preset::Tiny.model().hidden);
        assert_eq!(config.mode, Mode::Lora(LoraConfig { rank: 8, alpha: 32.0 }));
    }

    #[test]
    fn sizes_are_batch_times_sequence() {
        assert_eq!("4x128".parse(), Ok(Size([4, 128])));
        assert!("4".parse::<Size>().is_err());
    }
}
