//! The model arguments of `retrograph chat` and `retrograph serve`.

use std::path::PathBuf;

use clap::Args;

use super::InferenceArguments;

#[derive(Debug, Args)]
pub(crate) struct EngineArguments {
    /// Model directory in Hugging Face format: config.json, safetensors files, tokenizer.json.
    #[arg(long, value_name = "DIR")]
    pub(crate) model: PathBuf,
    /// KV-cache capacity: maximum tokens of a prompt and its answer together, at least 2 [default:
    /// the model's context, at most 4096].
    #[arg(long, value_name = "TOKENS")]
    pub(crate) max_length: Option<usize>,
    #[command(flatten)]
    pub(crate) inference: InferenceArguments,
}
