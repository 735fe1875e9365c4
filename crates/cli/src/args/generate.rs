//! The arguments of `retrograph generate`.

use std::path::PathBuf;

use clap::Args;
use retrograph_finetune::{
    DType, DeviceChoice, GenerationDefaults, Sampling, TrainingConfig, parse_dtype,
};

use super::{CacheArguments, PrecisionArguments, StrategyArgument, up_to};

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
    /// Use the newest checkpoint in this directory. If its run had a --model, give the same one.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["adapter", "dtype", "quantize"])]
    pub(crate) checkpoint: Option<PathBuf>,
    /// Text to continue.
    #[arg(long, value_name = "TEXT", required_unless_present = "prompt_file")]
    pub(crate) prompt: Option<String>,
    /// File with the text to continue, at most 256 MiB.
    #[arg(long, value_name = "FILE", conflicts_with = "prompt")]
    pub(crate) prompt_file: Option<PathBuf>,
    /// Maximum number of generated tokens, up to 16777216.
    #[arg(
        long, value_name = "TOKENS", default_value_t = DEFAULT_TOKENS,
        value_parser = up_to::<usize>(TrainingConfig::MOST_POSITIONS as u64)
    )]
    pub(crate) max_tokens: usize,
    /// KV-cache capacity: maximum tokens of prompt and generated text together, from 2 [default:
    /// prompt plus --max-tokens, at most the context length of the model].
    #[arg(long, value_name = "TOKENS")]
    pub(crate) max_length: Option<usize>,
    #[command(flatten)]
    pub(crate) precision: PrecisionArguments,
    /// Data type of the KV cache: f32, or bf16 for half the memory [default: --dtype].
    #[arg(long, value_name = "TYPE", value_parser = parse_dtype)]
    pub(crate) cache_dtype: Option<DType>,
    #[command(flatten)]
    sampling: SamplingArguments,
    /// End the text before this string. Can be given several times.
    #[arg(long, value_name = "TEXT")]
    pub(crate) stop: Vec<String>,
    /// Do not stop at end-of-text tokens.
    #[arg(long)]
    pub(crate) ignore_eos: bool,
    /// Execution strategy.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) strategy: StrategyArgument,
    /// Run every step eagerly, too, on a KV cache of its own, and require equal bits.
    #[arg(long)]
    pub(crate) verify: bool,
    /// Device: auto (the first GPU, or the simulated driver if there is none), cuda:N, or sim.
    #[arg(long, default_value_t)]
    pub(crate) device: DeviceChoice,
    #[command(flatten)]
    pub(crate) cache: CacheArguments,
    /// Print only the generated text.
    #[arg(long)]
    pub(crate) quiet: bool,
    /// Write tokens, text and times to this JSON file.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

/// The arguments for sampling. The model's generation_config.json gives the defaults.
#[derive(Debug, Args)]
struct SamplingArguments {
    /// Always take the most likely token.
    #[arg(long, conflicts_with_all = ["temperature", "top_k", "top_p", "seed"])]
    greedy: bool,
    /// Sampling temperature, the divisor of the logits, at least 0; 0 takes the most likely token
    /// [default: the model's, else 0; 1 if --top-k or --top-p is given].
    #[arg(long)]
    temperature: Option<f32>,
    /// Sample from this many of the most likely tokens; 0 for all [default: the model's, else 0].
    #[arg(long, value_name = "TOKENS")]
    top_k: Option<u32>,
    /// Sample from the most likely tokens whose probabilities sum to this, 0 to 1 [default: the
    /// model's, else 1].
    #[arg(long, value_name = "PROBABILITY")]
    top_p: Option<f32>,
    /// Penalty of tokens that are already in the text, above 0; 1 for none [default: the model's,
    /// else 1].
    #[arg(long, value_name = "FACTOR")]
    repetition_penalty: Option<f32>,
    /// Seed of the random numbers.
    #[arg(long, default_value_t = 42)]
    seed: u64,
}

impl GenerateArguments {
    /// Returns the sampling parameters, with `defaults` from the model.
    pub(crate) fn sampling(&self, defaults: &GenerationDefaults) -> Sampling {
        let given = &self.sampling;
        let meant = Sampling::by(defaults);
        // --top-k and --top-p have no effect on greedy decoding, so they ask for sampling.
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
    fn arguments_override_the_defaults_of_the_model() {
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
