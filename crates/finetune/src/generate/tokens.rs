//! The tokens of a text.

use retrograph_kernels::ops::SamplingParameters;

use super::request::{Request, Sampling};
use super::sizes::Sizes;
use super::workload::Step;
use super::{Generator, ring};
use crate::error::{Error, Result};

/// The tokens after a prompt. The next step runs while the caller gets a token, so that a caller
/// that stops early leaves one step unused.
#[derive(Debug)]
pub struct Tokens<'a> {
    generator: &'a mut Generator,
    sampling: Sampling,
    ends: Vec<u32>,
    prompt: usize,
    /// The most tokens to hand out.
    limit: usize,
    enqueued: usize,
    handed_out: usize,
    ended_by: Option<u32>,
    over: bool,
    device_ms: Option<f32>,
}

impl Generator {
    /// Computes the prompt and starts a text. The last text is forgotten.
    ///
    /// # Errors
    /// If the prompt is empty, has a token outside the vocabulary, or fills the capacity; if
    /// sampling is not valid; or if the device fails.
    pub fn tokens(&mut self, request: &Request<'_>) -> Result<Tokens<'_>> {
        request.sampling.validate()?;
        self.require(request.prompt)?;
        Tokens::start(self, request)
    }

    fn require(&self, prompt: &[u32]) -> Result<()> {
        let vocab = self.config.model.vocab;
        if prompt.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        if prompt.len() >= self.capacity {
            return Err(Error::PromptTooLong { tokens: prompt.len(), capacity: self.capacity });
        }
        let outside = prompt.iter().position(|&token| token as usize >= vocab);
        match outside {
            Some(index) => Err(Error::TokenOutside { index, token: prompt[index], vocab }),
            None => Ok(()),
        }
    }
}

impl<'a> Tokens<'a> {
    /// Computes the prompt, which samples the first token.
    fn start(generator: &'a mut Generator, request: &Request<'_>) -> Result<Self> {
        generator.ring.clear()?;
        let stream = &generator.stream;
        generator.programs.each().try_for_each(|one| one.workload().clear(stream))?;
        let prompt = request.prompt.len();
        let limit = request.max_tokens.min(generator.capacity - prompt);
        let mut tokens = Self {
            generator,
            sampling: request.sampling,
            ends: request.ends.to_vec(),
            prompt,
            limit,
            enqueued: 0,
            handed_out: 0,
            ended_by: None,
            over: limit == 0,
            device_ms: None,
        };
        if !tokens.over {
            tokens.prefill(request.prompt)?;
        }
        Ok(tokens)
    }

    fn prefill(&mut self, prompt: &[u32]) -> Result<()> {
        let mut position = 0;
        while position < prompt.len() {
            let piece = self.sizes().piece(position, prompt.len() - position);
            let tokens = &prompt[position..position + piece];
            let sampling = self.words(position + piece);
            self.run(Step { tokens, position, sampling })?;
            position += piece;
        }
        self.send()
    }

    fn words(&self, position: usize) -> [u32; SamplingParameters::LEN] {
        self.sampling.words(position)
    }

    fn sizes(&self) -> &Sizes {
        self.generator.programs.tested().workload().sizes()
    }

    /// Enqueues a step.
    fn run(&mut self, step: Step<'_>) -> Result<()> {
        let Generator { programs, stream, .. } = &mut *self.generator;
        programs.run(stream, step)
    }

    /// Sends the token of the last step to the host.
    fn send(&mut self) -> Result<()> {
        let Generator { ring, stream, programs, .. } = &mut *self.generator;
        ring.push(stream, programs.tested().workload().sampled())?;
        self.enqueued += 1;
        Ok(())
    }

    /// Starts steps until the ring is full.
    fn run_ahead(&mut self) -> Result<()> {
        while self.enqueued < self.limit && !self.generator.ring.is_full() {
            // The step reads the token that the step before sampled.
            let position = self.prompt + self.enqueued - 1;
            let sampling = self.words(position + 1);
            self.run(Step { tokens: &[], position, sampling })?;
            self.send()?;
        }
        Ok(())
    }

    fn take(&mut self) -> Result<Option<u32>> {
        self.run_ahead()?;
        let Some(([token, status], elapsed)) = self.generator.ring.take()? else { return Ok(None) };
        self.device_ms = elapsed;
        if status != 0 {
            let position = self.prompt + self.handed_out;
            return Err(Error::LogitsNotFinite { position });
        }
        if self.ends.contains(&token) {
            self.ended_by = Some(token);
            return Ok(None);
        }
        self.handed_out += 1;
        Ok(Some(token))
    }

    /// The token that ended the text, if one did.
    pub fn ended_by(&self) -> Option<u32> {
        self.ended_by
    }

    /// Milliseconds on the device between the last token and the one before it; `None` for the
    /// first.
    pub fn device_ms(&self) -> Option<f32> {
        self.device_ms
    }

    /// The generator.
    pub fn generator(&self) -> &Generator {
        self.generator
    }

    /// Steps in flight after the token that the caller got last.
    pub const AHEAD: usize = ring::AHEAD - 1;
}

impl Iterator for Tokens<'_> {
    type Item = Result<u32>;

    /// The next token.
    ///
    /// # Errors
    /// [`Error::LogitsNotFinite`] if a logit is NaN or infinite; with verification,
    /// [`Error::NotBitEqual`]; or if the device fails. No token follows an error.
    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let token = self.take().transpose();
        self.over = !matches!(token, Some(Ok(_)));
        token
    }
}
