//! The arguments for sampling.

use clap::Args;
use retrograph_finetune::{GenerationConfig, Sampling};

/// The model's generation_config.json gives the defaults.
#[derive(Debug, Args)]
pub(crate) struct SamplingArguments {
    /// Always take the most likely token.
    #[arg(long, conflicts_with_all = ["temperature", "top_k", "top_p", "seed"])]
    pub(crate) greedy: bool,
    /// Sampling temperature, the divisor of the logits, at least 0; 0 takes the most likely token
    /// [default: the model's, else 0; 1 if --top-k or --top-p is given].
    #[arg(long)]
    pub(crate) temperature: Option<f32>,
    /// Sample from this many of the most likely tokens; 0 for all [default: the model's, else 0].
    #[arg(long, value_name = "TOKENS")]
    pub(crate) top_k: Option<u32>,
    /// Sample from the most likely tokens whose probabilities sum to this, 0 to 1 [default: the
    /// model's, else 1].
    #[arg(long, value_name = "PROBABILITY")]
    pub(crate) top_p: Option<f32>,
    /// Penalty for tokens that are already in the text, above 0; 1 for none [default: the model's,
    /// else 1].
    #[arg(long, value_name = "FACTOR")]
    pub(crate) repetition_penalty: Option<f32>,
    /// Seed of the random numbers.
    #[arg(long, default_value_t = 42)]
    pub(crate) seed: u64,
}

impl SamplingArguments {
    /// Returns the sampling parameters, with `defaults` from the model.
    pub(crate) fn resolve(&self, defaults: &GenerationConfig) -> Sampling {
        let meant = Sampling::from_config(defaults);
        // --top-k and --top-p have no effect on greedy decoding, so they ask for sampling.
        let draws = self.top_k.is_some() || self.top_p.is_some();
        let fallback = match meant.temperature {
            0.0 if draws => defaults.temperature.unwrap_or(1.0),
            temperature => temperature,
        };
        let temperature = self.temperature.unwrap_or(fallback);
        Sampling {
            temperature: if self.greedy { 0.0 } else { temperature },
            top_k: self.top_k.unwrap_or(meant.top_k),
            top_p: self.top_p.unwrap_or(meant.top_p),
            repetition_penalty: self.repetition_penalty.unwrap_or(meant.repetition_penalty),
            seed: self.seed,
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
        arguments: SamplingArguments,
    }

    fn sampling(line: &[&str], defaults: &GenerationConfig) -> Sampling {
        Line::parse_from(["program"].iter().chain(line)).arguments.resolve(defaults)
    }

    #[test]
    fn arguments_override_the_defaults_of_the_model() {
        let defaults = GenerationConfig {
            do_sample: Some(true),
            temperature: Some(0.7),
            top_k: Some(20),
            ..GenerationConfig::default()
        };
        let seeded = Sampling { seed: 42, ..Sampling::greedy() };
        assert_eq!(sampling(&[], &GenerationConfig::default()), seeded);
        let meant = Sampling { temperature: 0.7, top_k: 20, ..seeded };
        assert_eq!(sampling(&[], &defaults), meant);
        let line = ["--temperature", "1.5", "--top-k", "0", "--seed", "7"];
        let asked = Sampling { temperature: 1.5, top_k: 0, seed: 7, ..meant };
        assert_eq!(sampling(&line, &defaults), asked);
        assert_eq!(sampling(&["--greedy"], &defaults).temperature, 0.0);
        let plain = GenerationConfig::default();
        assert_eq!(sampling(&["--top-p", "0.9"], &plain).temperature, 1.0);
    }
}
