//! What is to be generated, and how tokens are chosen.

use retrograph_kernels::ops::SamplingParameters;

use crate::error::{Error, Result};
use crate::tokenizer::GenerationDefaults;

/// How the next token is chosen.
///
/// With a temperature, token i comes with a probability that is proportional to
/// `exp(logit_i ÷ temperature)` among those that top-k and top-p keep. The same seed gives the same
/// tokens, whatever the strategy and the device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Logits are divided by this; at 0 the likeliest token is taken, of equal ones the lowest.
    pub temperature: f32,
    /// So many of the likeliest tokens are kept, and what is as likely as the last; 0 for all.
    pub top_k: u32,
    /// The least number of the likeliest tokens is kept whose probabilities reach this; 1 for all.
    pub top_p: f32,
    /// Logits of tokens that are in the text are divided by this, and multiplied below 0; 1 for
    /// nothing.
    pub repetition_penalty: f32,
    /// Seed of the draws.
    pub seed: u64,
}

impl Sampling {
    /// The likeliest token each time.
    pub fn greedy() -> Self {
        Self { temperature: 0.0, top_k: 0, top_p: 1.0, repetition_penalty: 1.0, seed: 0 }
    }

    /// As the authors of a model mean it to be sampled; greedy where they say nothing.
    pub fn by(defaults: &GenerationDefaults) -> Self {
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
    /// [`Error::InvalidConfig`] with the one that cannot be used.
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

    /// The words for the token at `position`.
    pub(super) fn words(&self, position: usize) -> [u32; SamplingParameters::LEN] {
        let Self { temperature, top_k, top_p, repetition_penalty, seed } = *self;
        let draw = position as u32;
        SamplingParameters { temperature, top_k, top_p, penalty: repetition_penalty, seed, draw }
            .words()
    }
}

/// A prompt and what is wanted behind it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The tokens to be continued, at least one.
    pub prompt: &'a [u32],
    /// The most tokens to generate. Fewer come where the room ends.
    pub max_tokens: usize,
    /// How they are chosen.
    pub sampling: Sampling,
    /// Tokens each of which ends the text; it is not handed out.
    pub ends: &'a [u32],
}

impl<'a> Request<'a> {
    /// As many tokens behind `prompt` as there is room for, with nothing that ends them.
    pub fn new(prompt: &'a [u32], sampling: Sampling) -> Self {
        Self { prompt, max_tokens: usize::MAX, sampling, ends: &[] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_authors_say_is_taken_and_the_rest_is_greedy() {
        assert_eq!(Sampling::by(&GenerationDefaults::default()), Sampling::greedy());
        let mut defaults =
            GenerationDefaults { temperature: Some(0.7), top_k: Some(20), ..Default::default() };
        assert_eq!(Sampling::by(&defaults).temperature, 0.0);
        defaults.do_sample = Some(true);
        let drawn = Sampling { temperature: 0.7, top_k: 20, ..Sampling::greedy() };
        assert_eq!(Sampling::by(&defaults), drawn);
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
