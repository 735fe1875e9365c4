//! The arguments of `retrograph chat`.

use std::path::PathBuf;

use clap::Args;

use super::{EngineArguments, SamplingArguments, token_limit};

#[derive(Debug, Args)]
pub(crate) struct ChatArguments {
    #[command(flatten)]
    pub(crate) engine: EngineArguments,
    /// Apply this LoRA adapter, a directory in PEFT format; /adapter on and /adapter off switch it.
    #[arg(long, value_name = "DIR")]
    pub(crate) adapter: Option<PathBuf>,
    /// System message at the start of each conversation.
    #[arg(long, value_name = "TEXT")]
    pub(crate) system: Option<String>,
    /// Maximum number of tokens per answer, 1 to 16776960.
    #[arg(
        long, value_name = "TOKENS", default_value_t = 1024,
        value_parser = token_limit()
    )]
    pub(crate) max_tokens: usize,
    #[command(flatten)]
    pub(crate) sampling: SamplingArguments,
    /// Print only the answers.
    #[arg(long)]
    pub(crate) quiet: bool,
}
