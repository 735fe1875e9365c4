//! Generation of text from text.

use super::Generator;
use super::request::{Request, Sampling};
use super::stops::StopStrings;
use crate::error::Result;
use crate::tokenizer::{ChatTemplate, Conversation, TokenStream, Tokenizer};

/// A text to continue.
#[derive(Clone, Debug)]
pub struct TextRequest<'a> {
    /// The text to be continued, as tokens; see [`TextRequest::new`].
    pub prompt: Vec<u32>,
    /// Maximum tokens to generate.
    pub max_tokens: usize,
    /// How they are chosen.
    pub sampling: Sampling,
    /// Tokens that each end the text.
    pub eos: &'a [u32],
    /// Strings that each end the text and are left out.
    pub stop_strings: &'a [String],
}

impl TextRequest<'_> {
    /// Continues `text` up to the capacity. A start token is added if the model expects one.
    ///
    /// # Errors
    /// When the text has a part for which there is no token.
    pub fn new(tokenizer: &Tokenizer, text: impl AsRef<[u8]>, sampling: Sampling) -> Result<Self> {
        let mut prompt: Vec<u32> = tokenizer.added_bos().into_iter().collect();
        prompt.extend(tokenizer.encode(text)?);
        Ok(Self { prompt, max_tokens: usize::MAX, sampling, eos: &[], stop_strings: &[] })
    }
}

impl TextRequest<'_> {
    /// Answers `conversation`. The template writes all special tokens.
    ///
    /// # Errors
    /// The error of the template, for example about the order of roles.
    pub fn answer(
        tokenizer: &Tokenizer,
        template: &ChatTemplate,
        conversation: &Conversation,
        sampling: Sampling,
    ) -> Result<Self> {
        let text = template.render(conversation, conversation.len(), true)?;
        let prompt = tokenizer.encode(text)?;
        Ok(Self { prompt, max_tokens: usize::MAX, sampling, eos: &[], stop_strings: &[] })
    }
}

/// The text of tokens, piece by piece, up to a stop string.
#[derive(Clone, Debug)]
pub struct TextStream<'a> {
    tokens: TokenStream<'a>,
    stops: StopStrings,
}

impl<'a> TextStream<'a> {
    /// Starts a text that ends before any of `stops`.
    pub fn new(tokenizer: &'a Tokenizer, stops: &[String]) -> Self {
        Self { tokens: tokenizer.stream(), stops: StopStrings::new(stops.iter().cloned()) }
    }

    /// Takes the next token. Returns the text that it completes, which may be empty, and whether a
    /// stop string ended it.
    pub fn push(&mut self, token: u32) -> (String, bool) {
        self.stops.push(&self.tokens.push(token))
    }

    /// Returns the rest of a text that did not end with a stop string.
    pub fn finish(mut self) -> String {
        let (mut rest, stopped) = self.stops.push(&self.tokens.finish());
        if !stopped {
            rest.push_str(&self.stops.finish());
        }
        rest
    }
}

/// The reason why a text ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopReason {
    /// A token that ends texts.
    Token(u32),
    /// A stop string.
    StopString,
    /// The text has the requested number of tokens.
    MaxTokens,
    /// The KV cache is full.
    CacheFull,
    /// The callback stopped it.
    Callback,
}

/// A generated text.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Generated {
    /// The tokens, without the one that ended the text.
    pub tokens: Vec<u32>,
    /// The text, without a stop string.
    pub text: String,
    /// Why the text ended.
    pub stop_reason: StopReason,
    /// Milliseconds on the device from token to token.
    pub device_ms: Vec<f32>,
}

impl Generator {
    /// Generates text. `on` receives each piece and returns whether to continue. A piece is empty
    /// if a token completes no character.
    ///
    /// # Errors
    /// As [`Generator::tokens`] and [`Tokens::next`](super::Tokens).
    pub fn text(
        &mut self,
        tokenizer: &Tokenizer,
        request: &TextRequest<'_>,
        on: &mut dyn FnMut(&str) -> bool,
    ) -> Result<Generated> {
        let (max_tokens, sampling) = (request.max_tokens, request.sampling);
        let capacity = self.capacity();
        let mut tokens = self.tokens(&Request {
            prompt: &request.prompt,
            max_tokens,
            sampling,
            eos: request.eos,
        })?;
        let mut stream = TextStream::new(tokenizer, request.stop_strings);
        let mut all = Vec::new();
        let (mut text, mut device_ms) = (String::new(), Vec::new());
        let mut stop_reason = None;
        while let Some(token) = tokens.next() {
            all.push(token?);
            device_ms.extend(tokens.device_ms());
            let (piece, stopped) = stream.push(all[all.len() - 1]);
            text.push_str(&piece);
            let go_on = on(&piece);
            if stopped || !go_on {
                stop_reason =
                    Some(if stopped { StopReason::StopString } else { StopReason::Callback });
                break;
            }
        }
        if stop_reason != Some(StopReason::StopString) {
            let rest = stream.finish();
            on(&rest);
            text.push_str(&rest);
        }
        let full = request.prompt.len() + all.len() >= capacity && all.len() < max_tokens;
        let limit = if full { StopReason::CacheFull } else { StopReason::MaxTokens };
        let stop_reason = stop_reason.or(tokens.ended_by().map(StopReason::Token)).unwrap_or(limit);
        Ok(Generated { tokens: all, text, stop_reason, device_ms })
    }
}
