//! The batch of a step.

use super::{DataError, IGNORED_TARGET};
use crate::error::Result;

/// The tokens of one step and their targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// `batch × seq` tokens, row-major.
    pub tokens: Vec<u32>,
    /// `batch × seq` targets: the next token, or [`IGNORED_TARGET`] to exclude it from the loss.
    pub targets: Vec<u32>,
    /// `batch × seq` positions of the tokens in their documents, from 0; `None` if each sequence is
    /// one document. A token attends only to tokens of its document.
    pub positions: Option<Vec<u32>>,
}

impl Batch {
    /// Returns the number of sequences of `seq` tokens up to the last one with a target.
    pub(crate) fn sequences(&self, seq: usize) -> usize {
        let last = self.targets.iter().rposition(|target| *target != IGNORED_TARGET);
        last.map_or(0, |last| last / seq + 1)
    }

    /// Checks that tokens and targets are in a vocabulary of `vocab` tokens.
    ///
    /// # Errors
    /// [`DataError::OutsideVocabulary`] with the first one that is not.
    pub fn require_vocab(&self, vocab: usize) -> Result<()> {
        require_known(&self.tokens, vocab, || "the batch".to_owned())?;
        require_targets(&self.targets, vocab, || "the targets of the batch".to_owned())
    }

    /// Returns the number of targets that are not ignored.
    pub fn counted(&self) -> u32 {
        self.targets.iter().filter(|target| **target != IGNORED_TARGET).count() as u32
    }
}

/// Returns the tokens of `batch` sequences of `seq` tokens.
///
/// # Errors
/// [`DataError::Shape`] if there are none, or more than 32 bits can count.
pub(super) fn tokens_in([batch, seq]: [usize; 2]) -> Result<usize, DataError> {
    let tokens = batch.checked_mul(seq).filter(|tokens| *tokens > 0);
    let tokens = tokens.filter(|tokens| u32::try_from(*tokens).is_ok());
    tokens.ok_or(DataError::Shape { batch, seq })
}

/// Checks that `tokens`, a part of the data, are in a vocabulary of `vocab` tokens.
pub(super) fn require_known(tokens: &[u32], vocab: usize, part: impl Fn() -> String) -> Result<()> {
    require_except(None, tokens, vocab, part)
}

/// Like [`require_known`], for targets, which may also be [`IGNORED_TARGET`].
pub(super) fn require_targets(
    targets: &[u32],
    vocab: usize,
    part: impl Fn() -> String,
) -> Result<()> {
    require_except(Some(IGNORED_TARGET), targets, vocab, part)
}

fn require_except(
    ignored: Option<u32>,
    tokens: &[u32],
    vocab: usize,
    part: impl Fn() -> String,
) -> Result<()> {
    let outside = |token: &u32| *token as usize >= vocab && Some(*token) != ignored;
    let Some(position) = tokens.iter().position(outside) else { return Ok(()) };
    let token = tokens[position];
    Err(DataError::OutsideVocabulary { token, position, part: part(), vocab }.into())
}
