//! What a model writes right after its training.

use super::lane::{Lane, Site};
use super::ring::Ring;
use super::{Generator, GeneratorOptions, Request, Sampling};
use crate::config::InferenceConfig;
use crate::error::Result;
use crate::trainer::{RotaryTables, TrainedModel};

impl TrainedModel {
    /// A generator over the parameters of the model, with room for `options.max_length` tokens.
    ///
    /// # Errors
    /// When the device has too little memory or fails.
    pub fn generator(&self, options: GeneratorOptions) -> Result<Generator> {
        let (config, room) = (InferenceConfig::from(&self.config), options.max_length);
        let (stream, cache) = (self.stream.clone(), self.cache.clone());
        let rotary = RotaryTables::new(&stream, &config.model, room)?;
        let cache_dtype = options.cache_dtype(&config);
        let (modules, rotary) = (&self.modules, &rotary);
        let site = Site { stream: &stream, modules, rotary, room, cache: cache_dtype };
        let lane = Lane::new(site, &config, self.state.clone(), options.build)?;
        let ring = Ring::new(stream.context())?;
        let (shadow, verified) = (None, 0);
        Ok(Generator { config, room, cache_dtype, lane, shadow, ring, stream, cache, verified })
    }

    /// Continues `prompt` by `count` tokens. The model sees at most as many tokens as in training;
    /// when there are more, the first half is forgotten.
    ///
    /// # Errors
    /// As [`Generator::tokens`].
    pub fn generate(&self, prompt: &[u32], count: usize, sampling: Sampling) -> Result<Vec<u32>> {
        let seq = self.config.seq;
        // The last token is chosen, but not taken in.
        let mut generator = self.generator(GeneratorOptions::new(seq + 1))?;
        let mut text = prompt.to_vec();
        while text.len() < prompt.len() + count {
            let seen = if text.len() > seq { seq.div_ceil(2) } else { text.len() };
            let context = text[text.len() - seen..].to_vec();
            let max_tokens = prompt.len() + count - text.len();
            // Draws are numbered by position: each part of the text has a seed of its own.
            let seed = sampling.seed.wrapping_add(text.len() as u64);
            let sampling = Sampling { seed, ..sampling };
            let request = Request { max_tokens, ..Request::new(&context, sampling) };
            for token in generator.tokens(&request)? {
                text.push(token?);
            }
        }
        Ok(text.split_off(prompt.len()))
    }
}
