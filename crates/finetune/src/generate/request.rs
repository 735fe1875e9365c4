//! Requests: the prompt, and the sampling of tokens.

use retrograph_kernels::ops::SamplingParameters;

use crate::error::{Error, Result};
use crate::tokenizer::GenerationConfig;

/// Sampling parameters.
///
/// With a temperature, the probability of token i is proportional to `exp(logit_i ÷ temperature)`
/// among the tokens that top-k and top-p keep. The same seed gives the same tokens on every device
/// and with every strategy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Divisor of the logits. 0 takes the most likely token, and the lowest of equally likely ones.
    pub temperature: f32,
    /// Keeps this many of the most likely tokens, and ties with the last; 0 keeps all.
    pub top_k: u32,
    /// Keeps the smallest set of most likely tokens whose probabilities sum to this; 1 keeps all.
    pub top_p: f32,
    /// Divides positive logits of tokens that are in the text, and multiplies negative ones; 1 for
    /// no penalty.
    pub repetition_penalty: f32,
    /// Seed of the draws.
    pub seed: u64,
}

impl Sampling {
    /// Returns parameters that take the most likely token each time.
    pub fn greedy() -> Self {
        Self { temperature: 0.0, top_k: 0, top_p: 1.0, repetition_penalty: 1.0, seed: 0 }
    }

    /// Returns the defaults of a model; greedy if it has none.
    pub fn from_config(defaults: &GenerationConfig) -> Self {
        let greedy = Self::greedy();
        let drawn = defaults.do_sample.unwrap_or(false);
        let top_k = defaults.top_k.and_then(|top_k| u32::try_from(top_k).ok());
        Self {
            temperature: if drawn { defaults.temperature.unwrap_or(1.0) } else { 0.0 },
            top_k: top_k.unwrap_or(greedy.top_k),
            top_p: defaults.top_p.unwrap_or(greedy.top_p),
            repetition_penalty: defaults.repetition_penalty.unwrap_or(greedy.repetition_penalty),
            seed: greedy.seed,
        }
    }

    /// Checks every value.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`] with the invalid parameter.
    pub fn validate(&self) -> Result<()> {
        let require = |field, value: f32, holds: bool, rule: &str| match holds {
            true => Ok(()),
            false => {
                let (value, rule) = (value.to_string(), rule.to_owned());
                Err(Error::InvalidConfig { field, value, rule })
            }
        };
        let Self { temperature, top_p, repetition_penalty: penalty, .. } = *self;
        let finite = temperature.is_finite() && temperature >= 0.0;
        require("temperature", temperature, finite, "finite and at least 0")?;
        require("top_p", top_p, (0.0..=1.0).contains(&top_p), "from 0 to 1")?;
        let positive = penalty.is_finite() && penalty > 0.0;
        require("repetition_penalty", penalty, positive, "finite and above 0")
    }

    /// Returns the control words of the token at `position`.
    pub(super) fn words(&self, position: usize) -> [u32; SamplingParameters::LEN] {
        let Self { temperature, top_k, top_p, repetition_penalty, seed } = *self;
        let draw = position as u32;
        SamplingParameters { temperature, top_k, top_p, repetition_penalty, seed, draw }.words()
    }
}

/// A prompt to continue.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The tokens to continue, at least one.
    pub prompt: &'a [u32],
    /// Maximum tokens to generate. A full KV cache ends the text earlier.
    pub max_tokens: usize,
    /// The sampling parameters.
    pub sampling: Sampling,
    /// Tokens that end the text and are not part of it.
    pub eos: &'a [u32],
}

impl<'a> Request<'a> {
    /// Continues `prompt` up to the capacity, without tokens that end the text.
    pub fn new(prompt: &'a [u32], sampling: Sampling) -> Self {
        Self { prompt, max_tokens: usize::MAX, sampling, eos: &[] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_of_a_model_apply_and_the_rest_is_greedy() {
        assert_eq!(Sampling::from_config(&GenerationConfig::default()), Sampling::greedy());
        let mut defaults =
            GenerationConfig { temperature: Some(0.7), top_k: Some(20), ..Default::default() };
        assert_eq!(Sampling::from_config(&defaults).temperature, 0.0);
        defaults.do_sample = Some(true);
        let drawn = Sampling { temperature: 0.7, top_k: 20, ..Sampling::greedy() };
        assert_eq!(Sampling::from_config(&defaults), drawn);
    }

    #[test]
    fn the_value_that_is_wrong_is_named() {
        let wrong = |sampling: Sampling| sampling.validate().unwrap_err().to_string();
        let greedy = Sampling::greedy();
        assert!(greedy.validate().is_ok());
        assert!(wrong(Sampling { temperature: -1.0, ..greedy }).contains("temperature is -1"));
        assert!(wrong(Sampling { temperature: f32::NAN, ..greedy }).contains("temperature"));
        assert!(wrong(Sampling { top_p: 1.5, ..greedy }).contains("top_p is 1.5"));
        assert!(wrong(Sampling { repetition_penalty: 0.0, ..greedy }).contains("penalty is 0"));
    }
}
