//! The arguments of `retrograph merge`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct MergeArguments {
    /// Directory of the base model, with one safetensors file or shards.
    #[arg(long, value_name = "DIR")]
    pub(crate) model: PathBuf,
    /// LoRA adapter, a directory in PEFT format.
    #[arg(long, value_name = "DIR")]
    pub(crate) adapter: PathBuf,
    /// Directory for the merged model; it must be empty or not exist.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
}
