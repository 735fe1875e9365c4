//! Examples as sequences: packed, or padded.

use serde::{Deserialize, Serialize};

use super::{DataError, Example, IGNORED_TARGET, Lengths};

/// The arrangement of examples as sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Tokens of a sequence, and the lengths to which the sequences of a step are padded.
    pub lengths: Lengths,
    /// Whether examples are packed: concatenated, and cut into sequences. Attention then crosses
    /// the boundaries of examples. Sequences without a learned token, inside a long prompt, are
    /// dropped. Otherwise each example is one padded sequence.
    pub packing: bool,
    /// The padding token.
    pub pad: u32,
}

/// Counts of examples, sequences and tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Examples read.
    pub examples: usize,
    /// Examples that were truncated to a sequence.
    pub truncated: usize,
    /// Examples without a learned token, or without one after truncation.
    pub dropped: usize,
    /// Sequences.
    pub sequences: usize,
    /// Tokens without padding.
    pub tokens: usize,
    /// Learned tokens.
    pub learned: usize,
    /// Whether examples are packed.
    pub packed: bool,
}

/// A sequence before padding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sequence {
    pub(super) tokens: Vec<u32>,
    pub(super) targets: Vec<u32>,
}

impl Sequence {
    /// Takes consecutive tokens. The target of each is the next one; the last is only a target.
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
    /// Arranges `examples` as sequences.
    ///
    /// # Errors
    /// [`DataError::NothingToLearn`] if no sequence has a learned token.
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
            // The last token is only a target.
            tally.truncated += usize::from(example.truncate(self.lengths.seq() + 1));
            if example.has_learned() {
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
            if example.has_learned() {
                all.append(example);
            } else {
                tally.dropped += 1;
            }
        }
        // The last target of a sequence is the first token of the next.
        let starts = (0..all.tokens().len().saturating_sub(1)).step_by(self.lengths.seq());
        let piece = |start: usize| {
            let end = all.tokens().len().min(start + self.lengths.seq() + 1);
            Sequence::of(&all.tokens()[start..end], &all.learned()[start..end])
        };
        starts.map(piece).collect()
    }
}
