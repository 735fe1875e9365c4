//! The arguments of `retrograph serve`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use retrograph_finetune::GeneratorOptions;

use super::{EngineArguments, one_to, parse_size, token_limit, up_to};

#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    #[command(flatten)]
    pub(crate) engine: EngineArguments,
    /// Name of the model in requests [default: the name of its directory].
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) name: Option<String>,
    /// Also serve the model with this LoRA adapter, under NAME. Can be given several times.
    #[arg(long, value_name = "NAME=DIR", value_parser = named)]
    pub(crate) adapter: Vec<(String, PathBuf)>,
    /// Address to listen on.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub(crate) host: IpAddr,
    /// Port to listen on; 0 takes a free one.
    #[arg(long, default_value_t = 8080)]
    pub(crate) port: u16,
    /// Requests that a model answers concurrently, 1 to 64. Each has its own KV cache.
    #[arg(
        long, value_name = "REQUESTS", default_value_t = 1,
        value_parser = one_to::<u8>(GeneratorOptions::MAX_BATCH as u64)
    )]
    pub(crate) batch: u8,
    /// Maximum number of waiting requests, up to 65536; further ones are refused.
    #[arg(
        long, value_name = "REQUESTS", default_value_t = 16,
        value_parser = up_to::<usize>(65_536)
    )]
    pub(crate) queue: usize,
    /// Maximum number of tokens per answer, 1 to 16776960. Also the default of requests that do not
    /// set a maximum.
    #[arg(
        long, value_name = "TOKENS", default_value_t = 1024,
        value_parser = token_limit()
    )]
    pub(crate) max_tokens: usize,
    /// Maximum size of a request body.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "1MiB")]
    pub(crate) max_body: u64,
    /// File with the key that requests must send as `Authorization: Bearer KEY`.
    #[arg(long, value_name = "FILE")]
    pub(crate) api_key_file: Option<PathBuf>,
    /// Seconds in which running and waiting requests may finish after Ctrl-C or SIGTERM.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub(crate) grace: u32,
}

/// Parses `NAME=DIR`.
fn named(text: &str) -> Result<(String, PathBuf), String> {
    let pair = text.split_once('=').filter(|(name, path)| !name.is_empty() && !path.is_empty());
    let (name, path) = pair.ok_or("give a name and a directory, such as mine=my-adapter")?;
    Ok((name.to_owned(), path.into()))
}
