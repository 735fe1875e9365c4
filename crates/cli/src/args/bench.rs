//! The arguments of `retrograph bench`.

use std::path::PathBuf;

use clap::Args;
use retrograph_finetune::bench::BenchStrategy;
use retrograph_finetune::{
    Adapter, DType, DeviceChoice, Error, F16Copies, GeneratorOptions, Mode, ModelConfig,
    OptimizerConfig, Precision, TrainingConfig, parse_dtype,
};

use super::{CacheArguments, HUB_RANK, ModelArguments, one_to, up_to};

#[derive(Debug, Args)]
pub(crate) struct BenchArguments {
    #[command(flatten)]
    pub(crate) model: ModelArguments,
    /// Measure the model of this config.json in Hugging Face format instead of a preset, with
    /// random weights. Options such as --layers replace its dimensions.
    #[arg(long, value_name = "FILE", conflicts_with = "preset")]
    pub(crate) model_config: Option<PathBuf>,
    /// Device: auto (the first GPU, or the simulated driver if there is none), cuda:N, or sim.
    #[arg(long, default_value_t)]
    pub(crate) device: DeviceChoice,
    #[command(flatten)]
    pub(crate) cache: CacheArguments,
    /// Sizes to measure, each as sequences per step x tokens per sequence.
    #[arg(long, value_delimiter = ',', default_value = "1x32,1x128,4x128")]
    pub(crate) sizes: Vec<Size>,
    /// Measure text generation instead of training, for each size: prompt tokens x KV-cache
    /// capacity in tokens, for example 512x1024.
    #[arg(long, value_delimiter = ',', conflicts_with = "sizes", value_name = "SIZES")]
    pub(crate) decode: Vec<Size>,
    /// Batch size of --decode: sequences generated together, 1 to 64.
    #[arg(
        long, value_name = "TEXTS", default_value_t = 1, requires = "decode",
        conflicts_with = "sizes",
        value_parser = one_to::<u8>(GeneratorOptions::MAX_BATCH as u64)
    )]
    pub(crate) batch: u8,
    /// Sampling temperature for --decode, at least 0; 0 takes the most likely token. Top-k is 20
    /// and top-p is 0.8.
    #[arg(long, default_value_t = 0.0, requires = "decode", conflicts_with = "sizes")]
    pub(crate) temperature: f32,
    /// Data type of the KV cache for --decode: f32 or bf16 [default: --dtype].
    #[arg(
        long, value_name = "TYPE", value_parser = parse_dtype, requires = "decode",
        conflicts_with = "sizes"
    )]
    pub(crate) cache_dtype: Option<DType>,
    /// Strategies to measure: eager, capture, manual, manual-no-pdl (without programmatic dependent
    /// launch) and manual-no-priorities.
    #[arg(long, value_delimiter = ',', default_value = "eager,capture,manual")]
    pub(crate) strategies: Vec<BenchStrategy>,
    /// Number of measured steps, 1 to 100000.
    #[arg(long, default_value_t = 30, value_parser = one_to::<u32>(100_000))]
    pub(crate) steps: u32,
    /// Number of warm-up steps before the measured steps, up to 100000.
    #[arg(long, default_value_t = 5, value_parser = up_to::<u32>(100_000))]
    pub(crate) warm_up: u32,
    /// Share of the tokens of each sequence that have a target, 0 to 1: the last ones, as in
    /// examples with a prompt. Other tokens have no loss.
    #[arg(
        long, value_name = "SHARE", default_value_t = 1.0, conflicts_with = "decode",
        value_parser = share
    )]
    pub(crate) targets: f32,
    /// Also measure the energy per step with the driver's energy counter, if the device has one.
    /// Runs extra steps for about 3 seconds per case. Results store it as `joules`.
    #[arg(long, conflicts_with = "decode")]
    pub(crate) energy: bool,
    /// Also profile the operations of each case, and print a table: of a training step, or of the
    /// prefill of one sequence and of a step of generation. Results store them as `profile` and
    /// `prefill_profile`.
    #[arg(long)]
    pub(crate) profile: bool,
    /// Round frozen weights to bf16, the type of most checkpoints. With --dtype f32, products of
    /// many rows then read them as one f16 part instead of two.
    #[arg(long)]
    pub(crate) bf16_weights: bool,
    /// Write the results to this JSON file.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

impl BenchArguments {
    /// Returns the configuration; each measurement replaces batch and sequence length. The learning
    /// rate is too small to diverge. Weights are random, so only the LoRA options of an adapter are
    /// used.
    pub(crate) fn config(&self) -> Result<TrainingConfig, Error> {
        let f16_copies = if self.bf16_weights { F16Copies::OneTerm } else { F16Copies::TwoTerms };
        let preset = self.model.dimensions.preset;
        let (model, rank) = match &self.model_config {
            Some(path) => (ModelConfig::read(path)?, HUB_RANK),
            None => (preset.model(), preset.default_rank()),
        };
        let model = self.model.dimensions.with_dimensions(model);
        let mode = match &self.model.lora.adapter {
            Some(path) => Mode::Lora(Adapter::open(path)?.lora()),
            None => self.model.mode(rank, true),
        };
        Ok(TrainingConfig {
            model,
            mode,
            precision: Precision { f16_copies, ..self.model.precision(DType::F32) },
            batch: 1,
            seq: 1,
            optimizer: OptimizerConfig::new(1e-7, 1000),
            seed: 0,
        })
    }
}

/// Reads a share.
fn share(text: &str) -> Result<f32, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| format!("`{text}` is not a share; give a number from 0 to 1"))
}

/// Two numbers, such as batch x sequence, written as `4x128`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) [usize; 2]);

impl std::str::FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text
            .split_once('x')
            .and_then(|(batch, seq)| Some(Self([batch.parse().ok()?, seq.parse().ok()?])));
        parsed.ok_or_else(|| format!("`{text}` is not a size; give two numbers, such as 4x128"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_batch_times_sequence() {
        assert_eq!("4x128".parse(), Ok(Size([4, 128])));
        assert!("4".parse::<Size>().is_err());
    }

    #[test]
    fn shares_are_from_0_to_1() {
        assert_eq!(["0", "0.25", "1"].map(share), [0.0, 0.25, 1.0].map(Ok));
        for wrong in ["-0.1", "1.1", "NaN", "half"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
    }
}
