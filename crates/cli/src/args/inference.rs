//! The arguments for text generation: precision, strategy, device and caches.

use clap::Args;
use retrograph_finetune::{DType, DeviceChoice, GeneratorOptions, parse_dtype};

use super::{CacheArguments, PrecisionArguments, StrategyArgument};

#[derive(Debug, Args)]
pub(crate) struct InferenceArguments {
    #[command(flatten)]
    pub(crate) precision: PrecisionArguments,
    /// Data type of the KV cache: f32, or bf16 for half the memory [default: --dtype].
    #[arg(long, value_name = "TYPE", value_parser = parse_dtype)]
    cache_dtype: Option<DType>,
    /// Execution strategy.
    #[arg(long, value_enum, default_value_t)]
    strategy: StrategyArgument,
    /// Device: auto (the first GPU, or the simulated driver if there is none), cuda:N, or sim.
    #[arg(long, default_value_t)]
    pub(crate) device: DeviceChoice,
    #[command(flatten)]
    pub(crate) cache: CacheArguments,
}

impl InferenceArguments {
    /// Returns the options of a generator whose KV cache holds `max_length` tokens.
    pub(crate) fn options(&self, max_length: usize, verify: bool) -> GeneratorOptions {
        let mut options = GeneratorOptions::new(max_length);
        options.build.policy = self.strategy.policy();
        options.cache = self.cache_dtype;
        options.verify = verify;
        options
    }
}
