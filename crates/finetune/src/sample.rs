//! Sample text from a trained model.

use crate::config::InferenceConfig;
use crate::error::Result;
use crate::generate::{GenerationPlan, Generator, GeneratorOptions, Request, Sampling};
use crate::trainer::{Plan, TrainedModel};

/// Returns options for texts of as many tokens as a sequence of training, and the token after them.
fn options(seq: usize) -> GeneratorOptions {
    // The last token is sampled and never read.
    GeneratorOptions::new(seq + 1)
}

impl Plan {
    /// Adds the kernels of [`TrainedModel::generate`]. They are then warmed before training.
    ///
    /// # Errors
    /// If a kernel does not support the sizes.
    pub fn with_sample(self) -> Result<Self> {
        let config = InferenceConfig::from(self.config());
        let generation = GenerationPlan::new(&config, options(self.config().seq))?;
        Ok(self.with_requirements(generation.requirements()))
    }
}

impl TrainedModel {
    /// Returns a generator over the parameters of the model. Its kernels must be warm.
    ///
    /// # Errors
    /// If a kernel is not warm, or the device has too little memory or fails.
    pub fn generator(&self, options: GeneratorOptions) -> Result<Generator> {
        let config = InferenceConfig::from(&self.config);
        let Self { stream, modules, cache, state, .. } = self;
        Generator::new(stream, modules, cache, &config, state.clone(), options)
    }

    /// Continues `prompt` by `count` tokens. The model attends to at most as many tokens as in
    /// training; a longer text loses its first half. The plan of the training must have been made
    /// [with a sample](Plan::with_sample).
    ///
    /// # Errors
    /// If the kernels are not warm, and as [`Generator::tokens`].
    pub fn generate(&self, prompt: &[u32], count: usize, sampling: Sampling) -> Result<Vec<u32>> {
        let seq = self.config.seq;
        let mut generator = self.generator(options(seq))?;
        let mut text = prompt.to_vec();
        while text.len() < prompt.len() + count {
            let seen = if text.len() > seq { seq.div_ceil(2) } else { text.len() };
            let context = text[text.len() - seen..].to_vec();
            let max_tokens = prompt.len() + count - text.len();
            // Random numbers depend on seed and position, so each window needs its own seed.
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
