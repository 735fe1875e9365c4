//! The arguments of `retrograph merge`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct MergeArguments {
    /// The base model: a directory with safetensors files, in one piece or in shards.
    #[arg(long, value_name = "DIR")]
    pub(crate) model: PathBuf,
    /// The adapter, in PEFT's format.
    #[arg(long, value_name = "DIR")]
    pub(crate) adapter: PathBuf,
    /// Where the merged model goes; there must be nothing yet.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
}
