//! The tokens of a text.

use retrograph_runtime::{Event, Profile};

use super::request::{Request, Sampling};
use super::workload::Step;
use super::{Generator, ring};
use crate::error::{Error, Result};

/// The tokens after a prompt. The next step runs while the caller processes a token, so a caller
/// that stops early leaves one step unused.
#[derive(Debug)]
pub struct Tokens<'a> {
    generator: &'a mut Generator,
    sequence: Sequence,
    ended_by: Option<u32>,
    over: bool,
    device_ms: Option<f32>,
}

/// The progress of a text.
#[derive(Debug)]
pub(super) struct Sequence {
    pub(super) sampling: Sampling,
    pub(super) ends: Vec<u32>,
    pub(super) prompt: usize,
    /// Maximum tokens to return.
    pub(super) limit: usize,
    pub(super) enqueued: usize,
    pub(super) handed_out: usize,
}

impl Sequence {
    /// The sequence of a request, which must fit into `capacity` positions with at least one token.
    pub(super) fn new(request: &Request<'_>, capacity: usize) -> Self {
        let prompt = request.prompt.len();
        Self {
            sampling: request.sampling,
            ends: request.eos.to_vec(),
            prompt,
            limit: request.max_tokens.min(capacity - prompt),
            enqueued: 0,
            handed_out: 0,
        }
    }

    /// Returns the position of the token of the next step; `None` if all steps are enqueued.
    pub(super) fn next_position(&self) -> Option<usize> {
        (self.enqueued < self.limit).then(|| self.prompt + self.enqueued - 1)
    }
}

impl Generator {
    /// Computes the prompt and starts a text. Clears the last text.
    ///
    /// # Errors
    /// If the prompt is empty, has a token outside the vocabulary, or fills the capacity; if
    /// sampling is not valid; or if the device fails.
    pub fn tokens(&mut self, request: &Request<'_>) -> Result<Tokens<'_>> {
        self.require(request)?;
        Tokens::start(self, request)
    }

    /// Checks a request.
    pub(super) fn require(&self, request: &Request<'_>) -> Result<()> {
        request.sampling.validate()?;
        let (prompt, vocab) = (request.prompt, self.config.model.vocab);
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

    /// Clears the last text and enqueues the prefill of a prompt, which samples the first token.
    pub(super) fn prefill(&mut self, request: &Request<'_>) -> Result<()> {
        let Self { programs, stream, .. } = self;
        programs.each().try_for_each(|one| one.workload().clear(stream))?;
        let (prompt, mut position) = (request.prompt, 0);
        while position < prompt.len() {
            let sizes = programs.replayed().workload().sizes();
            let piece = sizes.piece(position, prompt.len() - position);
            let tokens = &prompt[position..position + piece];
            let sampling = request.sampling.words(position + piece);
            let positions = &[position as u32];
            programs.run(stream, Step { tokens, positions, sampling: &sampling })?;
            position += piece;
        }
        Ok(())
    }

    /// Profiles the operations of the prefill of the first tokens of a prompt: all, if one pass
    /// computes them. See [`retrograph_runtime::profile`].
    ///
    /// # Errors
    /// As [`Generator::tokens`], or if a graph with events cannot be built.
    pub fn profile_prefill(&mut self, request: &Request<'_>, replays: usize) -> Result<Profile> {
        self.require(request)?;
        let Self { programs, stream, .. } = self;
        let piece = programs.replayed().workload().sizes().piece(0, request.prompt.len());
        let (tokens, sampling) = (&request.prompt[..piece], request.sampling.words(piece));
        let step = Step { tokens, positions: &[0], sampling: &sampling };
        programs.replayed_mut().profile(stream, step, replays)
    }

    /// Returns the device milliseconds of the prefill of a prompt. Clears the last text.
    pub(crate) fn prefill_ms(&mut self, request: &Request<'_>) -> Result<f32> {
        self.require(request)?;
        let [start, end] = [(); 2].map(|()| Event::new(self.context()));
        let (start, end) = (start?, end?);
        start.record(&*self.stream.outside_capture("timing a prefill")?)?;
        self.prefill(request)?;
        end.record(&*self.stream.outside_capture("timing a prefill")?)?;
        end.synchronize()?;
        Ok(end.elapsed_ms(&start)?)
    }
}

impl<'a> Tokens<'a> {
    /// Runs the prefill, which samples the first token.
    fn start(generator: &'a mut Generator, request: &Request<'_>) -> Result<Self> {
        generator.ring.clear()?;
        let sequence = Sequence::new(request, generator.capacity);
        let over = sequence.limit == 0;
        let mut tokens = Self { generator, sequence, ended_by: None, over, device_ms: None };
        if !tokens.over {
            tokens.generator.prefill(request)?;
            tokens.send()?;
        }
        Ok(tokens)
    }

    /// Copies the token of the last step to the host.
    fn send(&mut self) -> Result<()> {
        let Generator { ring, stream, programs, .. } = &mut *self.generator;
        ring.push(stream, programs.replayed().workload().sampled())?;
        self.sequence.enqueued += 1;
        Ok(())
    }

    /// Starts steps until the ring is full.
    fn run_ahead(&mut self) -> Result<()> {
        while !self.generator.ring.is_full() {
            let Some(position) = self.sequence.next_position() else { break };
            // The step reads the token that the previous step sampled.
            let sampling = self.sequence.sampling.words(position + 1);
            let positions = &[position as u32];
            let Generator { programs, stream, .. } = &mut *self.generator;
            programs.run(stream, Step { tokens: &[], positions, sampling: &sampling })?;
            self.send()?;
        }
        Ok(())
    }

    fn take(&mut self) -> Result<Option<u32>> {
        self.run_ahead()?;
        let Some((words, elapsed)) = self.generator.ring.take()? else { return Ok(None) };
        let [token, status] = words[0];
        self.device_ms = elapsed;
        if status != 0 {
            let position = self.sequence.prompt + self.sequence.handed_out;
            return Err(Error::LogitsNotFinite { position });
        }
        if self.sequence.ends.contains(&token) {
            self.ended_by = Some(token);
            return Ok(None);
        }
        self.sequence.handed_out += 1;
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

    /// Steps in flight after the last token that the caller received.
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
