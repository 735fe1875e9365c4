//! The arguments of `retrograph bench`.

use std::path::PathBuf;

use clap::Args;
use retrograph_finetune::bench::Contender;
use retrograph_finetune::{DeviceChoice, Dtype, OptimizerConfig, TrainingConfig};

use super::{CacheArguments, ModelArguments, up_to};

#[derive(Debug, Args)]
pub(crate) struct BenchArguments {
    #[command(flatten)]
    pub(crate) model: ModelArguments,
    /// auto, cuda:N, or sim.
    #[arg(long, default_value_t)]
    pub(crate) device: DeviceChoice,
    #[command(flatten)]
    pub(crate) cache: CacheArguments,
    /// Batch x sequence of each size.
    #[arg(long, value_delimiter = ',', default_value = "1x32,1x128,4x128")]
    pub(crate) sizes: Vec<Size>,
    /// Measure the generation of text instead, behind prompts of so many tokens with so much room
    /// in the cache: tokens x room.
    #[arg(long, value_delimiter = ',', conflicts_with = "sizes", value_name = "SIZES")]
    pub(crate) decode: Vec<Size>,
    /// Randomness of the tokens that are generated, with top-k 20 and top-p 0.8; 0 takes the
    /// likeliest.
    #[arg(long, default_value_t = 0.0, requires = "decode")]
    pub(crate) temperature: f32,
    /// The type of keys and values in the cache: f32 or bf16 [default: that of --dtype].
    #[arg(long, value_name = "TYPE", requires = "decode")]
    pub(crate) cache_dtype: Option<Dtype>,
    /// What is measured: eager, capture, manual, manual-late (no PDL), manual-equal (no node
    /// priorities); eager-whole and manual-whole, without micro-batches.
    #[arg(long, value_delimiter = ',', default_value = "eager,capture,manual")]
    pub(crate) strategies: Vec<Contender>,
    /// Steps that are measured.
    #[arg(long, default_value_t = 30, value_parser = up_to::<u32>(100_000))]
    pub(crate) steps: u32,
    /// Steps before the measurement.
    #[arg(long, default_value_t = 5, value_parser = up_to::<u32>(100_000))]
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
            mode: self.model.mode(self.model.preset.default_rank(), true),
            precision: self.model.precision(),
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
    fn sizes_are_batch_times_sequence() {
        assert_eq!("4x128".parse(), Ok(Size([4, 128])));
        assert!("4".parse::<Size>().is_err());
    }
}
