//! Examples as sequences: packed, or padded.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{DataError, Example, IGNORED_TARGET, Lengths};

/// The arrangement of examples as sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Tokens of a sequence, and the lengths to which the sequences of a step are padded.
    pub lengths: Lengths,
    /// Whether several examples share a sequence, each as a document of its own: attention and
    /// positions stay inside it, and losses equal the losses of padded examples. Otherwise each
    /// example is one padded sequence.
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
    /// Packed texts that are longer than a sequence, and are several documents.
    #[serde(default)]
    pub split: usize,
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

impl Tally {
    fn count(&mut self, sequences: &[Sequence]) {
        self.sequences = sequences.len();
        self.tokens = sequences.iter().map(|sequence| sequence.tokens.len()).sum();
        self.learned = sequences.iter().map(Sequence::learned).sum();
    }
}

/// A sequence before padding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sequence {
    pub(super) tokens: Vec<u32>,
    pub(super) targets: Vec<u32>,
    /// The tokens of each document.
    pub(super) documents: Vec<u32>,
}

impl Sequence {
    /// Takes consecutive tokens as one document. The target of each is the next one; the last is
    /// only a target.
    fn of(tokens: &[u32], learned: &[bool]) -> Self {
        let target = |(&token, &learned): (&u32, &bool)| {
            if learned { token } else { IGNORED_TARGET }
        };
        let last = tokens.len().saturating_sub(1);
        let targets = tokens.iter().zip(learned).skip(1).map(target).collect();
        Self { tokens: tokens[..last].to_vec(), targets, documents: vec![last as u32] }
    }

    /// The position of each token in its document.
    pub(super) fn positions(&self) -> impl Iterator<Item = u32> {
        self.documents.iter().flat_map(|tokens| 0..*tokens)
    }

    /// Appends the documents of `other`.
    fn append(&mut self, other: Self) {
        self.tokens.extend(other.tokens);
        self.targets.extend(other.targets);
        self.documents.extend(other.documents);
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
        tally.count(&sequences);
        if sequences.is_empty() {
            let (examples, seq) = (tally.examples, self.lengths.seq());
            return Err(DataError::NothingToLearn { examples, seq });
        }
        Ok((sequences, tally))
    }

    /// Arranges pairs of `examples` as sequences in turns. A pair is dropped if nothing of one of
    /// its examples is learned after truncation.
    ///
    /// # Errors
    /// [`DataError::NothingToLearn`] if no pair is left.
    pub(super) fn lay_out_pairs(
        self,
        pairs: Vec<[Example; 2]>,
    ) -> Result<(Vec<Sequence>, Tally), DataError> {
        let mut tally = Tally { examples: pairs.len(), ..Tally::default() };
        let (mut sequences, mut dropped) = (Vec::with_capacity(2 * pairs.len()), 0);
        for pair in pairs {
            match pair.map(|example| self.truncated(example, &mut tally)) {
                [Some(chosen), Some(rejected)] => sequences.extend([chosen, rejected]),
                _ => dropped += 1,
            }
        }
        tally.dropped = dropped;
        tally.count(&sequences);
        if sequences.is_empty() {
            let (examples, seq) = (tally.examples, self.lengths.seq());
            return Err(DataError::NothingToLearn { examples, seq });
        }
        Ok((sequences, tally))
    }

    /// One sequence per example, truncated to its length.
    fn pad(self, examples: Vec<Example>, tally: &mut Tally) -> Vec<Sequence> {
        let one = |example| self.truncated(example, tally);
        examples.into_iter().filter_map(one).collect()
    }

    /// The example as one document of at most a sequence. `None` if nothing of it is learned.
    fn truncated(self, mut example: Example, tally: &mut Tally) -> Option<Sequence> {
        // The last token is only a target.
        tally.truncated += usize::from(example.truncate(self.lengths.seq() + 1));
        if !example.has_learned() {
            tally.dropped += 1;
            return None;
        }
        Some(Sequence::of(example.tokens(), example.learned()))
    }

    /// Documents in as few sequences as best fit finds. A text that is longer than a sequence is
    /// split. Other examples are truncated: an answer without its prompt is not worth learning.
    fn pack(self, examples: Vec<Example>, tally: &mut Tally) -> Vec<Sequence> {
        let seq = self.lengths.seq();
        let mut documents = Vec::with_capacity(examples.len());
        for example in examples {
            if example.tokens().len() <= seq + 1 || !example.is_text() {
                documents.extend(self.truncated(example, tally));
                continue;
            }
            tally.split += 1;
            // The last target of a document is the first token of the next.
            let (tokens, learned) = (example.tokens(), example.learned());
            let pieces = (0..tokens.len() - 1).step_by(seq).map(|start| {
                let end = tokens.len().min(start + seq + 1);
                Sequence::of(&tokens[start..end], &learned[start..end])
            });
            documents.extend(pieces);
        }
        best_fit(documents, seq)
    }
}

/// Packs documents into sequences of at most `seq` tokens by best-fit decreasing: from the longest
/// on, each into the fullest sequence that fits it.
///
/// Source: Ding et al., "Fewer Truncations Improve Language Modeling", arXiv 2404.10830.
fn best_fit(mut documents: Vec<Sequence>, seq: usize) -> Vec<Sequence> {
    documents.sort_by_key(|document| Reverse(document.tokens.len()));
    let mut sequences: Vec<Sequence> = Vec::new();
    // Free tokens of sequences, and their numbers.
    let mut free: BTreeSet<(usize, usize)> = BTreeSet::new();
    for document in documents {
        let tokens = document.tokens.len();
        let best = free.range((tokens, 0)..).next().copied();
        let (capacity, number) = best.unwrap_or((seq, sequences.len()));
        match sequences.get_mut(number) {
            Some(sequence) => sequence.append(document),
            None => sequences.push(document),
        }
        free.remove(&(capacity, number));
        free.insert((capacity - tokens, number));
    }
    sequences
}

#[cfg(test)]
mod tests {
    use super::*;

    fn documents(lengths: &[usize]) -> Vec<Sequence> {
        let learned = |length: &usize| {
            let mut learned = vec![true; length + 1];
            learned[0] = false;
            Sequence::of(&vec![*length as u32; length + 1], &learned)
        };
        lengths.iter().map(learned).collect()
    }

    #[test]
    fn documents_go_to_the_fullest_sequence_that_fits() {
        let packed = |lengths: &[usize], seq| -> Vec<Vec<u32>> {
            best_fit(documents(lengths), seq).into_iter().map(|one| one.documents).collect()
        };
        assert_eq!(packed(&[3, 7, 2, 5, 4], 10), [vec![7, 3], vec![5, 4], vec![2]]);
        // The fullest sequence that fits is the second one.
        assert_eq!(packed(&[6, 8, 2], 10), [vec![8, 2], vec![6]]);
        assert_eq!(packed(&[10, 10, 1], 10), [vec![10], vec![10], vec![1]]);
        assert_eq!(packed(&[1; 7], 3), [vec![1, 1, 1], vec![1, 1, 1], vec![1]]);
        assert!(packed(&[], 3).is_empty());
    }

    #[test]
    fn no_document_is_lost_and_no_sequence_overflows() {
        let lengths: Vec<usize> = (0..500).map(|i| (i * i * 7 + i) % 61 + 1).collect();
        let sequences = best_fit(documents(&lengths), 64);
        let mut found: Vec<usize> = sequences
            .iter()
            .flat_map(|one| &one.documents)
            .map(|tokens| *tokens as usize)
            .collect();
        let mut expected = lengths.clone();
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected);
        for Sequence { tokens, targets, documents } in &sequences {
            let sum: u32 = documents.iter().sum();
            assert!(tokens.len() <= 64 && targets.len() == tokens.len());
            assert_eq!(sum as usize, tokens.len());
        }
        let least = lengths.iter().sum::<usize>().div_ceil(64);
        assert!(sequences.len() <= least + least / 50 + 1, "{} for {least}", sequences.len());
    }
}
