//! Examples as sequences of equal length: one behind the other, or each by itself and filled up.

use serde::{Deserialize, Serialize};

use super::{DataError, Example, IGNORED_TARGET, Lengths};

/// How examples become sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Tokens of a sequence, and how far those of a step are filled up.
    pub lengths: Lengths,
    /// Whether examples lie behind each other and are cut where a sequence ends. Attention then
    /// reaches over the borders between examples, and a sequence without any token to learn, inside
    /// of a long prompt, is left out. Otherwise each example has a sequence of its own.
    pub packing: bool,
    /// What a sequence is filled up with.
    pub pad: u32,
}

/// What became of the examples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Examples read.
    pub examples: usize,
    /// Those that were longer than a sequence and lost their end.
    pub truncated: usize,
    /// Those that had no token to learn, or none left.
    pub dropped: usize,
    /// Sequences.
    pub sequences: usize,
    /// Tokens, without those that only fill up.
    pub tokens: usize,
    /// Tokens that are learned.
    pub learned: usize,
    /// Whether examples lie behind each other.
    pub packed: bool,
}

/// A sequence that is not filled up yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sequence {
    pub(super) tokens: Vec<u32>,
    pub(super) targets: Vec<u32>,
}

impl Sequence {
    /// Of tokens one behind the other: each but the last is followed by the next.
    fn of(tokens: &[u32], learned: &[bool]) -> Self {
        let target = |(&token, &learned): (&u32, &bool)| {
            if learned { token } else { IGNORED_TARGET }
        };
        let last = tokens.len().saturating_sub(1);
        let targets = tokens.iter().zip(learned).skip(1).map(target).collect();
        Self { tokens: tokens[..last].to_vec(), targets }
    }

    fn learned(&self) -> usize {
        self.targets.iter().filter(|target| **target != IGNORED_TARGET).count()
    }
}

impl Layout {
    /// Lays `examples` out.
    ///
    /// # Errors
    /// [`DataError::NothingToLearn`] when no sequence has a token to learn.
    pub(super) fn lay_out(
        self,
        examples: Vec<Example>,
    ) -> Result<(Vec<Sequence>, Tally), DataError> {
        let mut tally =
            Tally { examples: examples.len(), packed: self.packing, ..Tally::default() };
        let sequences = if self.packing {
            self.pack(examples, &mut tally)
        } else {
            self.pad(examples, &mut tally)
        };
        let sequences: Vec<Sequence> =
            sequences.into_iter().filter(|sequence| sequence.learned() > 0).collect();
        tally.sequences = sequences.len();
        tally.tokens = sequences.iter().map(|sequence| sequence.tokens.len()).sum();
        tally.learned = sequences.iter().map(Sequence::learned).sum();
        if sequences.is_empty() {
            let (examples, seq) = (tally.examples, self.lengths.seq());
            return Err(DataError::NothingToLearn { examples, seq });
        }
        Ok((sequences, tally))
    }

    fn pad(self, examples: Vec<Example>, tally: &mut Tally) -> Vec<Sequence> {
        let mut sequences = Vec::with_capacity(examples.len());
        for mut example in examples {
            // The last token is only predicted, and takes no place.
            tally.truncated += usize::from(example.truncate(self.lengths.seq() + 1));
            if example.teaches() {
                sequences.push(Sequence::of(example.tokens(), example.learned()));
            } else {
                tally.dropped += 1;
            }
        }
        sequences
    }

    fn pack(self, examples: Vec<Example>, tally: &mut Tally) -> Vec<Sequence> {
        let mut all = Example::default();
        for example in examples {
            if example.teaches() {
                all.append(example);
            } else {
                tally.dropped += 1;
            }
        }
        // The last token of a sequence is predicted there, and the first of the next.
        let starts = (0..all.tokens().len().saturating_sub(1)).step_by(self.lengths.seq());
        let piece = |start: usize| {
            let end = all.tokens().len().min(start + self.lengths.seq() + 1);
            Sequence::of(&all.tokens()[start..end], &all.learned()[start..end])
        };
        starts.map(piece).collect()
    }
}
