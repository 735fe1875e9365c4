//! The batch of a step.

use super::{DataError, IGNORED_TARGET};
use crate::error::Result;

/// The tokens of one step and, for each, the token that is to be predicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// `batch × seq` tokens, row-major.
    pub tokens: Vec<u32>,
    /// `batch × seq` tokens that are to be predicted, or [`IGNORED_TARGET`] where nothing is.
    pub targets: Vec<u32>,
}

impl Batch {
    /// How many tokens are to be predicted.
    pub fn counted(&self) -> u32 {
        self.targets.iter().filter(|target| **target != IGNORED_TARGET).count() as u32
    }
}

/// Checks that a model of `vocab` tokens knows `tokens`, which are a part of the data.
pub(super) fn require_known(tokens: &[u32], vocab: usize, part: impl Fn() -> String) -> Result<()> {
    let outside = |token: &&u32| **token as usize >= vocab;
    let Some(&token) = tokens.iter().find(outside) else { return Ok(()) };
    let position = tokens.iter().position(|other| *other == token).unwrap_or(0);
    Err(DataError::OutsideVocabulary { token, position, part: part(), vocab }.into())
}
