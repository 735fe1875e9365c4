//! Training data, and the batch of each step.
//!
//! [`TextData`] is one text; a step takes windows of it. [`Examples`] are texts, prompts with
//! completions, or conversations from JSON Lines. The tokens are in memory, or in a file of a
//! [`TokenCache`]. Each window or example is seen once per epoch. The batch of a step depends only
//! on the seed and the step, so a resumed run continues with the same batches.

mod batch;
mod corpus;
mod error;
mod example;
mod examples;
mod forms;
mod gaps;
mod jsonl;
mod layout;
mod lengths;
mod lines;
mod marks;
mod order;
mod parallel;
mod preferences;
#[cfg(feature = "parquet")]
mod rows;
mod split;
mod text;
mod token_cache;
mod turns;

pub use batch::Batch;
pub use error::DataError;
pub use example::Example;
pub use examples::Examples;
pub use jsonl::{Forms, Progress, read_jsonl, read_preferences};
pub use layout::{Layout, Tally};
pub use lengths::Lengths;
pub use lines::JsonlLimits;
pub use retrograph_kernels::ops::IGNORED_TARGET;
pub use split::{DataFile, Split, SplitOptions};
pub use text::{MAX_TEXT_TOKENS, TextData};
pub use token_cache::{CacheState, CacheUse, TokenCache};

use crate::error::Result;

/// Training data or held-out data.
#[derive(Debug)]
pub enum Data {
    /// One text.
    Text(TextData),
    /// Many examples.
    Examples(Examples),
}

impl Data {
    /// Whether batches are packed; see [`StepOptions::packed`](crate::model::StepOptions::packed).
    pub fn is_packed(&self) -> bool {
        match self {
            Self::Text(_) => false,
            Self::Examples(examples) => examples.layout().packing,
        }
    }

    /// Whether the sequences are pairs: chosen and rejected alternate.
    pub fn has_pairs(&self) -> bool {
        match self {
            Self::Text(_) => false,
            Self::Examples(examples) => examples.has_pairs(),
        }
    }

    /// SHA-256 of the tokens and targets, in hexadecimal.
    pub fn fingerprint(&self) -> &str {
        match self {
            Self::Text(text) => text.fingerprint(),
            Self::Examples(examples) => examples.fingerprint(),
        }
    }

    /// Checks that the data has sequences of `seq` tokens.
    ///
    /// # Errors
    /// [`Error::TextTooShort`](crate::Error::TextTooShort), or [`DataError::OtherSeq`].
    pub fn require(&self, seq: usize) -> Result<()> {
        match self {
            Self::Text(text) => text.require(seq),
            Self::Examples(examples) => examples.require(seq),
        }
    }

    /// Checks that all tokens are in a vocabulary of `vocab` tokens.
    ///
    /// # Errors
    /// [`DataError::OutsideVocabulary`] with the first one that is not.
    pub fn require_vocab(&self, vocab: usize) -> Result<()> {
        match self {
            Self::Text(text) => text.require_vocab(vocab),
            Self::Examples(examples) => examples.require_vocab(vocab),
        }
    }

    /// Returns the number of sequences of `seq` tokens in an epoch.
    pub fn sequences(&self, seq: usize) -> usize {
        match self {
            Self::Text(text) => text.sequences(seq),
            Self::Examples(examples) => examples.tally().sequences,
        }
    }

    /// Returns the batch of `step`, counted from 0.
    ///
    /// # Errors
    /// The errors of [`Data::require`], and [`DataError::Shape`].
    pub fn batch(&self, shape: [usize; 2], seed: u64, step: u32) -> Result<Batch> {
        match self {
            Self::Text(text) => text.batch(shape, seed, step),
            Self::Examples(examples) => examples.batch(shape, seed, step),
        }
    }

    /// Returns batch `index` of a pass over the data in order, in which each target occurs once.
    /// `None` after the last batch.
    ///
    /// # Errors
    /// [`Error::TextTooShort`](crate::Error::TextTooShort) if there is no target,
    /// [`DataError::OtherSeq`], or [`DataError::Shape`].
    pub fn in_order(&self, shape: [usize; 2], index: usize) -> Result<Option<Batch>> {
        match self {
            Self::Text(text) => text.in_order(shape, index),
            Self::Examples(examples) => examples.in_order(shape, index),
        }
    }

    /// Returns the first tokens of the text or of the first document, at most `len`.
    pub fn first(&self, len: usize) -> Vec<u32> {
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
