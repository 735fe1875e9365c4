//! The arguments of a model that answers one request after another.

use std::path::PathBuf;

use clap::Args;
use retrograph_finetune::{DType, DeviceChoice, parse_dtype};

use super::{CacheArguments, PrecisionArguments, StrategyArgument};

#[derive(Debug, Args)]
pub(crate) struct EngineArguments {
    /// Model directory in Hugging Face format: config.json, safetensors files, tokenizer.json.
    #[arg(long, value_name = "DIR")]
    pub(crate) model: PathBuf,
    /// KV-cache capacity: maximum tokens of a prompt and its answer together, from 2 [default: the
    /// context length of the model, at most 4096].
    #[arg(long, value_name = "TOKENS")]
    pub(crate) max_length: Option<usize>,
    #[command(flatten)]
    pub(crate) precision: PrecisionArguments,
    /// Data type of the KV cache: f32, or bf16 for half the memory [default: --dtype].
    #[arg(long, value_name = "TYPE", value_parser = parse_dtype)]
    pub(crate) cache_dtype: Option<DType>,
    /// Execution strategy.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) strategy: StrategyArgument,
    /// Device: auto (the first GPU, or the simulated driver if there is none), cuda:N, or sim.
    #[arg(long, default_value_t)]
    pub(crate) device: DeviceChoice,
    #[command(flatten)]
    pub(crate) cache: CacheArguments,
}
