//! An example: tokens, and a mask of tokens with loss.

use std::io;

use super::corpus::{CorpusWriter, HAS_LOSS};
use super::turns::{Piece, turns};
use crate::error::Result;
use crate::tokenizer::{ChatTemplate, Conversation, Tokenizer};

/// Tokens, and for each token whether it has loss, that is, whether its prediction counts in the
/// loss.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Example {
    tokens: Vec<u32>,
    loss_mask: Vec<bool>,
}

impl Example {
    /// Encodes a text, with the start and end tokens of the tokenizer. All tokens have loss.
    ///
    /// # Errors
    /// The errors of [`Tokenizer::encode`].
    pub fn text(text: &str, tokenizer: &Tokenizer) -> Result<Self> {
        let mut example = Self::started(tokenizer);
        example.push(tokenizer.encode(text)?, true);
        example.end(tokenizer);
        Ok(example)
    }

    /// Encodes a prompt and its completion. Only the completion has loss.
    ///
    /// # Errors
    /// The errors of [`Tokenizer::encode`].
    pub fn completion(prompt: &str, completion: &str, tokenizer: &Tokenizer) -> Result<Self> {
        let mut example = Self::started(tokenizer);
        let piece = |text: &str, has_loss| Piece { text: text.to_owned(), has_loss };
        example.pieces(&[piece(prompt, false), piece(completion, true)], tokenizer)?;
        example.end(tokenizer);
        Ok(example)
    }

    /// Encodes a conversation as `template` renders it. Assistant messages have loss, including
    /// their end tokens.
    ///
    /// # Errors
    /// If the template fails on the conversation, or a message of the assistant cannot be found in
    /// the rendered text.
    pub fn conversation(
        conversation: &Conversation,
        template: &ChatTemplate,
        tokenizer: &Tokenizer,
    ) -> Result<Self> {
        let mut example = Self::default();
        let pieces = turns(conversation, template, tokenizer)?;
        example.pieces(&pieces, tokenizer)?;
        // The template writes the start token itself. The first token has no prediction.
        if let Some(first) = example.loss_mask.first_mut() {
            *first = false;
        }
        Ok(example)
    }

    /// The tokens.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Returns for each token whether it has loss. The first token never has, because no token
    /// predicts it.
    pub fn loss_mask(&self) -> &[bool] {
        &self.loss_mask
    }

    /// Appends the example to a corpus.
    pub(super) fn write(&self, writer: &mut CorpusWriter) -> io::Result<()> {
        // Tokens of a tokenizer are smaller than `HAS_LOSS`.
        let word = |(token, has_loss): (&u32, &bool)| token | if *has_loss { HAS_LOSS } else { 0 };
        let words: Vec<u32> = self.tokens.iter().zip(&self.loss_mask).map(word).collect();
        writer.push(&words)?;
        writer.end();
        Ok(())
    }

    /// Excludes the first `count` tokens from learning.
    pub(super) fn forget(&mut self, count: usize) {
        self.loss_mask.iter_mut().take(count).for_each(|has_loss| *has_loss = false);
    }

    /// Returns whether any token has loss.
    pub(super) fn has_loss(&self) -> bool {
        self.loss_mask.contains(&true)
    }

    fn started(tokenizer: &Tokenizer) -> Self {
        let mut example = Self::default();
        example.push(tokenizer.added_bos().into_iter().collect(), false);
        example
    }

    fn push(&mut self, tokens: Vec<u32>, has_loss: bool) {
        let first = self.tokens.is_empty() && !tokens.is_empty();
        self.loss_mask.resize(self.loss_mask.len() + tokens.len(), has_loss);
        self.tokens.extend(tokens);
        if first {
            self.loss_mask[0] = false;
        }
    }

    /// Appends the end token, unless the example ends with it.
    fn end(&mut self, tokenizer: &Tokenizer) {
        let end = tokenizer.eos().filter(|end| self.tokens.last() != Some(end));
        self.push(end.into_iter().collect(), true);
    }

    /// Appends the tokens of consecutive pieces of a text. No token spans two pieces.
    fn pieces(&mut self, pieces: &[Piece], tokenizer: &Tokenizer) -> Result<()> {
        let mut before = "";
        for Piece { text, has_loss } in pieces {
            self.push(following(before, text, tokenizer)?, *has_loss);
            before = text;
        }
        Ok(())
    }
}

/// Encodes `text` after `before`. Some tokenizers encode the beginning of a text differently from
/// its middle, so both are encoded together if that does not change the tokens of `before`.
fn following(before: &str, text: &str, tokenizer: &Tokenizer) -> Result<Vec<u32>> {
    let encode = |text: &str| tokenizer.encode(text);
    let (alone, together) = (encode(before)?, encode(&format!("{before}{text}"))?);
    match together.strip_prefix(alone.as_slice()) {
        Some(rest) => Ok(rest.to_vec()),
        None => encode(text),
    }
}
