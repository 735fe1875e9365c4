//! What a run learns from, and the batch of each step.
//!
//! [`TextData`] is one text, from which a step takes windows at random places. [`Examples`] are
//! texts, prompts with completions, or conversations, from the lines of a file, each of them seen
//! once in an epoch. Either way the batch of a step is a function of the seed and the step alone,
//! so that a resumed run sees exactly what an uninterrupted one would have seen.

mod batch;
mod error;
mod example;
mod examples;
mod gaps;
mod jsonl;
mod layout;
mod lengths;
mod marks;
mod order;
mod split;
mod text;
mod turns;

pub use batch::Batch;
pub use error::DataError;
pub use example::Example;
pub use examples::Examples;
pub use jsonl::{Forms, JsonlLimits, Progress, read_jsonl};
pub use layout::{Layout, Tally};
pub use lengths::Lengths;
pub use retrograph_kernels::ops::IGNORED_TARGET;
pub use split::{Split, SplitOptions};
pub use text::{MOST_TEXT_TOKENS, TextData};

use crate::error::Result;

/// What a run learns from.
#[derive(Debug)]
pub enum Data {
    /// One text.
    Text(TextData),
    /// Many examples.
    Examples(Examples),
}

impl Data {
    /// SHA-256 of what is learned from, in hexadecimal digits.
    pub fn fingerprint(&self) -> &str {
        match self {
            Self::Text(text) => text.fingerprint(),
            Self::Examples(examples) => examples.fingerprint(),
        }
    }

    /// Checks that there are batches of sequences of `seq` tokens.
    ///
    /// # Errors
    /// [`Error::TextTooShort`](crate::Error::TextTooShort), or [`DataError::OtherSeq`].
    pub fn require(&self, seq: usize) -> Result<()> {
        match self {
            Self::Text(text) => text.require(seq),
            Self::Examples(examples) => examples.require(seq),
        }
    }

    /// Checks that a model of `vocab` tokens knows all tokens.
    ///
    /// # Errors
    /// [`DataError::OutsideVocabulary`] with the first one that it does not know.
    pub fn require_vocab(&self, vocab: usize) -> Result<()> {
        match self {
            Self::Text(text) => text.require_vocab(vocab),
            Self::Examples(examples) => examples.require_vocab(vocab),
        }
    }

    /// The batch of `step`, counted from 0.
    ///
    /// # Errors
    /// Those of [`Data::require`].
    pub fn batch(&self, shape: [usize; 2], seed: u64, step: u32) -> Result<Batch> {
        match self {
            Self::Text(text) => text.batch(shape, seed, step),
            Self::Examples(examples) => examples.batch(shape, seed, step),
        }
    }

    /// The batch `index` of those that have every token to be predicted exactly once, in order;
    /// `None` behind the last.
    ///
    /// # Errors
    /// When there is nothing to predict, or [`DataError::OtherSeq`].
    pub fn in_order(&self, shape: [usize; 2], index: usize) -> Result<Option<Batch>> {
        match self {
            Self::Text(text) => text.in_order(shape, index),
            Self::Examples(examples) => examples.in_order(shape, index),
        }
    }

    /// The first tokens, at most `len`: of the text, or of the first sequence.
    pub fn first(&self, len: usize) -> &[u32] {
        match self {
            Self::Text(text) => text.first(len),
            Self::Examples(examples) => examples.first(len),
        }
    }
}

impl From<TextData> for Data {
    fn from(text: TextData) -> Self {
        Self::Text(text)
    }
}

impl From<Examples> for Data {
    fn from(examples: Examples) -> Self {
        Self::Examples(examples)
    }
}
