//! An example: tokens, and which of them are to be learned.

use super::turns::{Piece, turns};
use crate::error::Result;
use crate::tokenizer::{ChatTemplate, Conversation, Tokenizer};

/// Tokens, and for each whether a model is to learn to predict it from those before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Example {
    tokens: Vec<u32>,
    learned: Vec<bool>,
}

impl Example {
    /// A text that starts and ends as the tokenizer says. All of it is learned.
    ///
    /// # Errors
    /// What [`Tokenizer::encode`] fails with.
    pub fn text(text: &str, tokenizer: &Tokenizer) -> Result<Self> {
        let mut example = Self::started(tokenizer);
        example.push(tokenizer.encode(text)?, true);
        example.end(tokenizer);
        Ok(example)
    }

    /// What is given, which is not learned, and what is to follow it.
    ///
    /// # Errors
    /// What [`Tokenizer::encode`] fails with.
    pub fn completion(prompt: &str, completion: &str, tokenizer: &Tokenizer) -> Result<Self> {
        let mut example = Self::started(tokenizer);
        let piece = |text: &str, learned| Piece { text: text.to_owned(), learned };
        example.pieces(&[piece(prompt, false), piece(completion, true)], tokenizer)?;
        example.end(tokenizer);
        Ok(example)
    }

    /// A conversation as `template` writes it. What the assistant says is learned, with the token
    /// that ends it.
    ///
    /// # Errors
    /// When the template refuses the conversation, or writes it such that the place of what the
    /// assistant says cannot be found.
    pub fn conversation(
        conversation: &Conversation,
        template: &ChatTemplate,
        tokenizer: &Tokenizer,
    ) -> Result<Self> {
        let mut example = Self::default();
        let pieces = turns(conversation, template, tokenizer)?;
        example.pieces(&pieces, tokenizer)?;
        // The template has written what starts a conversation, and nothing comes before it.
        if let Some(first) = example.learned.first_mut() {
            *first = false;
        }
        Ok(example)
    }

    /// The tokens.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// For each token whether it is learned; the first never is, as nothing comes before it.
    pub fn learned(&self) -> &[bool] {
        &self.learned
    }

    /// Keeps at most `len` tokens, and says whether there were more.
    pub(super) fn truncate(&mut self, len: usize) -> bool {
        let longer = self.tokens.len() > len;
        self.tokens.truncate(len);
        self.learned.truncate(len);
        longer
    }

    /// Whether any token is learned.
    pub(super) fn teaches(&self) -> bool {
        self.learned.contains(&true)
    }

    /// Takes the tokens of `other` behind its own.
    pub(super) fn append(&mut self, other: Self) {
        self.tokens.extend(other.tokens);
        self.learned.extend(other.learned);
    }

    fn started(tokenizer: &Tokenizer) -> Self {
        let mut example = Self::default();
        example.push(tokenizer.start().into_iter().collect(), false);
        example
    }

    fn push(&mut self, tokens: Vec<u32>, learned: bool) {
        let first = self.tokens.is_empty() && !tokens.is_empty();
        self.learned.resize(self.learned.len() + tokens.len(), learned);
        self.tokens.extend(tokens);
        if first {
            self.learned[0] = false;
        }
    }

    /// The token that ends a text, unless it is there.
    fn end(&mut self, tokenizer: &Tokenizer) {
        let end = tokenizer.end().filter(|end| self.tokens.last() != Some(end));
        self.push(end.into_iter().collect(), true);
    }

    /// The tokens of pieces of a text. What a model would see before a piece is what it sees here:
    /// no token reaches over the border of two pieces.
    fn pieces(&mut self, pieces: &[Piece], tokenizer: &Tokenizer) -> Result<()> {
        let mut before = "";
        for Piece { text, learned } in pieces {
            self.push(following(before, text, tokenizer)?, *learned);
            before = text;
        }
        Ok(())
    }
}

/// The tokens of `text` behind `before`. Some tokenizers write the beginning of a text in another
/// way than its middle, so that both are divided together where that does not change the first.
fn following(before: &str, text: &str, tokenizer: &Tokenizer) -> Result<Vec<u32>> {
    let encode = |text: &str| tokenizer.encode(text);
    let (alone, together) = (encode(before)?, encode(&format!("{before}{text}"))?);
    match together.strip_prefix(alone.as_slice()) {
        Some(rest) => Ok(rest.to_vec()),
        None => encode(text),
    }
}
