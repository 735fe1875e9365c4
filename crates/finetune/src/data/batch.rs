//! The batch of a step.

use super::{DataError, IGNORED_TARGET};
use crate::error::Result;

/// The tokens of one step, and the target of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// `batch × seq` tokens, row-major.
    pub tokens: Vec<u32>,
    /// `batch × seq` targets: the next token, or [`IGNORED_TARGET`] for no loss.
    pub targets: Vec<u32>,
    /// `batch × seq` positions of the tokens in their documents, which start at 0; `None` if each
    /// sequence is one document. A token attends to tokens of its document only.
    pub positions: Option<Vec<u32>>,
}

impl Batch {
    /// Returns the number of sequences of `seq` tokens up to the last one with a target.
    pub(crate) fn sequences(&self, seq: usize) -> usize {
        let last = self.targets.iter().rposition(|target| *target != IGNORED_TARGET);
        last.map_or(0, |last| last / seq + 1)
    }

    /// Returns the number of targets that are not ignored.
    pub fn counted(&self) -> u32 {
        self.targets.iter().filter(|target| **target != IGNORED_TARGET).count() as u32
    }
}

/// Checks that `tokens`, a part of the data, are in a vocabulary of `vocab` tokens.
pub(super) fn require_known(tokens: &[u32], vocab: usize, part: impl Fn() -> String) -> Result<()> {
    let outside = |token: &&u32| **token as usize >= vocab;
    let Some(&token) = tokens.iter().find(outside) else { return Ok(()) };
    let position = tokens.iter().position(|other| *other == token).unwrap_or(0);
    Err(DataError::OutsideVocabulary { token, position, part: part(), vocab }.into())
}
