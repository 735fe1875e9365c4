//! The arguments of `retrograph generate`.

use std::path::PathBuf;

use clap::Args;
use retrograph_finetune::{DeviceChoice, Dtype, GenerationDefaults, Sampling, TrainingConfig};

use super::{CacheArguments, PrecisionArguments, StrategyArgument, up_to};

/// Tokens behind the prompt when no number is asked for.
const DEFAULT_TOKENS: usize = 256;

#[derive(Debug, Args)]
pub(crate) struct GenerateArguments {
    /// The model: a directory with config.json, safetensors files and a tokenizer.
    #[arg(long, value_name = "DIR", required_unless_present = "checkpoint")]
    pub(crate) model: Option<PathBuf>,
    /// Add this adapter to the model, in PEFT's format.
    #[arg(long, value_name = "DIR")]
    pub(crate) adapter: Option<PathBuf>,
    /// Take the model from the newest checkpoint of this directory, and not from other arguments
    /// but --model, which is needed where the run had one.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["adapter", "dtype", "quantize"])]
    pub(crate) checkpoint: Option<PathBuf>,
    /// The text to continue.
    #[arg(long, value_name = "TEXT", required_unless_present = "prompt_file")]
    pub(crate) prompt: Option<String>,
    /// Continue the text in this file.
    #[arg(long, value_name = "FILE", conflicts_with = "prompt")]
    pub(crate) prompt_file: Option<PathBuf>,
    /// The most tokens to generate.
    #[arg(
        long, value_name = "TOKENS", default_value_t = DEFAULT_TOKENS,
        value_parser = up_to::<usize>(TrainingConfig::MOST_POSITIONS as u64)
    )]
    pub(crate) max_tokens: usize,
    /// The most tokens of prompt and text together, for which the cache has room [default: what
    /// the prompt and --max-tokens need, at most as many positions as the model has].
    #[arg(long, value_name = "TOKENS")]
    pub(crate) max_length: Option<usize>,
    #[command(flatten)]
    pub(crate) precision: PrecisionArguments,
    /// The type of keys and values in the cache: f32, or bf16 for half the memory [default: that of
    /// --dtype].
    #[arg(long, value_name = "TYPE")]
    pub(crate) cache_dtype: Option<Dtype>,
    #[command(flatten)]
    sampling: SamplingArguments,
    /// End the text before this string; may be given several times.
    #[arg(long, value_name = "TEXT")]
    pub(crate) stop: Vec<String>,
    /// Go on behind tokens that end a text.
    #[arg(long)]
    pub(crate) ignore_eos: bool,
    /// How a step reaches the device.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) strategy: StrategyArgument,
    /// Run the eager step beside every step on a cache of its own and compare all bits.
    #[arg(long)]
    pub(crate) verify: bool,
    /// auto, cuda:N, or sim.
    #[arg(long, default_value_t)]
    pub(crate) device: DeviceChoice,
    #[command(flatten)]
    pub(crate) cache: CacheArguments,
    /// Print the text and nothing else.
    #[arg(long)]
    pub(crate) quiet: bool,
    /// Write tokens, text and times as JSON.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

/// How tokens are chosen. What is not given is as the model's generation_config.json says.
#[derive(Debug, Args)]
struct SamplingArguments {
    /// Take the likeliest token each time.
    #[arg(long, conflicts_with_all = ["temperature", "top_k", "top_p", "seed"])]
    greedy: bool,
    /// Randomness: logits are divided by it; 0 takes the likeliest token.
    #[arg(long)]
    temperature: Option<f32>,
    /// Draw from so many of the likeliest tokens; 0 for all.
    #[arg(long, value_name = "TOKENS")]
    top_k: Option<u32>,
    /// Draw from the likeliest tokens that have this probability together.
    #[arg(long, value_name = "PROBABILITY")]
    top_p: Option<f32>,
    /// Make tokens that are in the text less likely; 1 for not at all.
    #[arg(long, value_name = "FACTOR")]
    repetition_penalty: Option<f32>,
    /// Seed of the draws.
    #[arg(long, default_value_t = 42)]
    seed: u64,
}

impl GenerateArguments {
    /// How tokens are chosen, where `defaults` are what the authors of the model mean.
    pub(crate) fn sampling(&self, defaults: &GenerationDefaults) -> Sampling {
        let given = &self.sampling;
        let meant = Sampling::by(defaults);
        // Whoever says how to draw wants to draw.
        let draws = given.top_k.is_some() || given.top_p.is_some();
        let fallback = match meant.temperature {
            0.0 if draws => defaults.temperature.unwrap_or(1.0),
            temperature => temperature,
        };
        let temperature = given.temperature.unwrap_or(fallback);
        Sampling {
            temperature: if given.greedy { 0.0 } else { temperature },
            top_k: given.top_k.unwrap_or(meant.top_k),
            top_p: given.top_p.unwrap_or(meant.top_p),
            repetition_penalty: given.repetition_penalty.unwrap_or(meant.repetition_penalty),
            seed: given.seed,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        arguments: GenerateArguments,
    }

    fn sampling(line: &[&str], defaults: &GenerationDefaults) -> Sampling {
        let fixed = ["program", "--model", "m", "--prompt", "p"];
        Line::parse_from(fixed.iter().chain(line)).arguments.sampling(defaults)
    }

    #[test]
    fn arguments_come_before_what_the_authors_of_the_model_say() {
        let defaults = GenerationDefaults {
            do_sample: Some(true),
            temperature: Some(0.7),
            top_k: Some(20),
            ..GenerationDefaults::default()
        };
        let seeded = Sampling { seed: 42, ..Sampling::greedy() };
        assert_eq!(sampling(&[], &GenerationDefaults::default()), seeded);
        let meant = Sampling { temperature: 0.7, top_k: 20, ..seeded };
        assert_eq!(sampling(&[], &defaults), meant);
        let line = ["--temperature", "1.5", "--top-k", "0", "--seed", "7"];
        let asked = Sampling { temperature: 1.5, top_k: 0, seed: 7, ..meant };
        assert_eq!(sampling(&line, &defaults), asked);
        assert_eq!(sampling(&["--greedy"], &defaults).temperature, 0.0);
        let plain = GenerationDefaults::default();
        assert_eq!(sampling(&["--top-p", "0.9"], &plain).temperature, 1.0);
    }

    #[test]
    fn a_prompt_is_needed_and_one_is_enough() {
        assert!(Line::try_parse_from(["program", "--model", "m"]).is_err());
        let both = ["program", "--model", "m", "--prompt", "p", "--prompt-file", "f"];
        assert!(Line::try_parse_from(both).is_err());
    }
}
