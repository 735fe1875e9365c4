//! The arguments of `retrograph generate`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;

use super::{InferenceArguments, SamplingArguments, token_limit};

/// Default of `--max-tokens`.
const DEFAULT_TOKENS: usize = 256;

#[derive(Debug, Args)]
pub(crate) struct GenerateArguments {
    /// Model directory in Hugging Face format: config.json, safetensors files, tokenizer.json.
    #[arg(long, value_name = "DIR", required_unless_present = "checkpoint")]
    pub(crate) model: Option<PathBuf>,
    /// Apply this LoRA adapter, a directory in PEFT format.
    #[arg(long, value_name = "DIR")]
    pub(crate) adapter: Option<PathBuf>,
    /// Use the newest checkpoint in this directory. If its run had --model, give the same one.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["adapter", "dtype", "quantize"])]
    pub(crate) checkpoint: Option<PathBuf>,
    /// Use the checkpoint with the lowest held-out loss, from a run with --save-best.
    #[arg(long, requires = "checkpoint")]
    pub(crate) best: bool,
    /// Text to continue.
    #[arg(long, value_name = "TEXT", required_unless_present = "prompt_file")]
    pub(crate) prompt: Option<String>,
    /// File with the text to continue, at most 256 MiB.
    #[arg(long, value_name = "FILE", conflicts_with = "prompt")]
    pub(crate) prompt_file: Option<PathBuf>,
    /// Maximum number of generated tokens, 1 to 16776960.
    #[arg(
        long, value_name = "TOKENS", default_value_t = DEFAULT_TOKENS,
        value_parser = token_limit()
    )]
    pub(crate) max_tokens: usize,
    /// KV-cache capacity: maximum tokens of prompt and generated text together, at least 2
    /// [default: prompt plus --max-tokens, at most the model's context].
    #[arg(long, value_name = "TOKENS")]
    pub(crate) max_length: Option<usize>,
    #[command(flatten)]
    pub(crate) inference: InferenceArguments,
    #[command(flatten)]
    pub(crate) sampling: SamplingArguments,
    /// Stop before this string. Can be given several times.
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) stop: Vec<String>,
    /// Do not stop at end-of-text tokens.
    #[arg(long)]
    pub(crate) ignore_eos: bool,
    /// Also run every step eagerly on a separate KV cache, and fail unless all bits are equal.
    #[arg(long)]
    pub(crate) verify: bool,
    /// Print only the generated text.
    #[arg(long)]
    pub(crate) quiet: bool,
    /// Write tokens, text and times to this JSON file.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        _arguments: GenerateArguments,
    }

    #[test]
    fn exactly_one_prompt_is_required() {
        assert!(Line::try_parse_from(["program", "--model", "m"]).is_err());
        let both = ["program", "--model", "m", "--prompt", "p", "--prompt-file", "f"];
        assert!(Line::try_parse_from(both).is_err());
    }
}
