//! Arranges examples in sequences, packed or padded.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::batch::tokens_in;
use super::corpus::{Corpus, HAS_LOSS};
use super::{DataError, Lengths};

/// How examples are arranged in sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Tokens per sequence, and the lengths to which the sequences of a step are padded.
    pub lengths: Lengths,
    /// Whether several examples share a sequence, each as its own document: attention and positions
    /// stay within a document, and losses equal the losses of padded examples. Otherwise each
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
    /// Packed texts that are longer than a sequence and were split into several documents.
    #[serde(default)]
    pub split: usize,
    /// Examples without a token with loss after truncation.
    pub dropped: usize,
    /// Sequences.
    pub sequences: usize,
    /// Tokens without padding.
    pub tokens: usize,
    /// Learned tokens.
    pub loss_tokens: usize,
    /// Whether examples are packed.
    pub packed: bool,
}

/// Consecutive words of a corpus: tokens, followed by the target of the last token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Document {
    start: u64,
    pub(super) tokens: u32,
}

impl Document {
    /// Returns the words of `range` as one document. The last word is only a target.
    fn of(range: Range<usize>) -> Self {
        Self { start: range.start as u64, tokens: range.len().saturating_sub(1) as u32 }
    }

    /// Returns the range of the tokens in the corpus. Targets are one word later.
    pub(super) fn place(self) -> Range<usize> {
        let start = self.start as usize;
        start..start + self.tokens as usize
    }

    /// Returns the document as 32-bit words, for the fingerprint.
    pub(super) fn words(self) -> [u32; 3] {
        [self.start as u32, (self.start >> 32) as u32, self.tokens]
    }
}

/// Documents arranged in sequences.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Arrangement {
    documents: Vec<Document>,
    /// The end of each sequence in the documents.
    ends: Vec<usize>,
}

impl Arrangement {
    /// Number of sequences.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The documents of a sequence.
    pub(super) fn sequence(&self, number: usize) -> &[Document] {
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.documents[start..self.ends[number]]
    }

    /// Tokens of a sequence.
    pub(super) fn tokens(&self, number: usize) -> usize {
        self.sequence(number).iter().map(|document| document.tokens as usize).sum()
    }

    /// One document per sequence.
    fn of(documents: Vec<Document>) -> Self {
        Self { ends: (1..=documents.len()).collect(), documents }
    }
}

impl Layout {
    /// Arranges the `examples` of `corpus` as sequences.
    ///
    /// # Errors
    /// [`DataError::NoTokensWithLoss`] if no sequence has a token with loss, and
    /// [`DataError::Shape`].
    pub(super) fn lay_out(
        self,
        corpus: &Corpus,
        examples: &[usize],
    ) -> Result<(Arrangement, Tally), DataError> {
        tokens_in([1, self.lengths.seq()])?;
        let tally = Tally { examples: examples.len(), packed: self.packing, ..Tally::default() };
        let mut found = Found { words: corpus.words(), seq: self.lengths.seq(), tally };
        let mut documents = Vec::with_capacity(examples.len());
        for range in examples.iter().map(|&number| corpus.example(number)) {
            match self.packing {
                true => found.split(range, &mut documents),
                false => documents.extend(found.truncated(range)),
            }
        }
        self.arrange(documents, found.tally)
    }

    /// Arranges `pairs` of consecutive examples as alternating sequences. Drops a pair if either
    /// example has no token with loss after truncation.
    ///
    /// # Errors
    /// [`DataError::NoTokensWithLoss`] if no pair is left, and [`DataError::Shape`].
    pub(super) fn lay_out_pairs(
        self,
        corpus: &Corpus,
        pairs: &[usize],
    ) -> Result<(Arrangement, Tally), DataError> {
        tokens_in([1, self.lengths.seq()])?;
        let tally = Tally { examples: pairs.len(), ..Tally::default() };
        let mut found = Found { words: corpus.words(), seq: self.lengths.seq(), tally };
        let (mut documents, mut dropped) = (Vec::with_capacity(2 * pairs.len()), 0);
        for pair in pairs {
            let both = [2 * pair, 2 * pair + 1].map(|number| corpus.example(number));
            let loss_tokens = found.tally.loss_tokens;
            match both.map(|range| found.truncated(range)) {
                [Some(chosen), Some(rejected)] => documents.extend([chosen, rejected]),
                _ => (dropped, found.tally.loss_tokens) = (dropped + 1, loss_tokens),
            }
        }
        found.tally.dropped = dropped;
        self.arrange(documents, found.tally)
    }

    /// Makes sequences of `documents`.
    fn arrange(
        self,
        documents: Vec<Document>,
        mut tally: Tally,
    ) -> Result<(Arrangement, Tally), DataError> {
        let (examples, seq) = (tally.examples, self.lengths.seq());
        if documents.is_empty() {
            return Err(DataError::NoTokensWithLoss { path: None, examples, seq });
        }
        tally.tokens = documents.iter().map(|document| document.tokens as usize).sum();
        let arrangement = match self.packing {
            true => best_fit(documents, seq),
            false => Arrangement::of(documents),
        };
        tally.sequences = arrangement.len();
        Ok((arrangement, tally))
    }
}

/// Documents that were found, and their counts.
struct Found<'a> {
    words: &'a [u32],
    seq: usize,
    tally: Tally,
}

impl Found<'_> {
    /// Returns the example at `range` as one document, truncated to a sequence. `None` if no token
    /// has loss.
    fn truncated(&mut self, range: Range<usize>) -> Option<Document> {
        // The last token is only a target.
        let kept = range.start..range.end.min(range.start + self.seq + 1);
        self.tally.truncated += usize::from(kept.end < range.end);
        let loss_tokens = count_loss_tokens(&self.words[kept.clone()]);
        self.tally.loss_tokens += loss_tokens;
        self.tally.dropped += usize::from(loss_tokens == 0);
        (loss_tokens > 0).then(|| Document::of(kept))
    }

    /// Adds the example at `range` to `documents`. Splits a text that is longer than a sequence,
    /// but truncates other examples, since an answer should not have loss without its prompt.
    fn split(&mut self, range: Range<usize>, documents: &mut Vec<Document>) {
        let all = range.len().saturating_sub(1);
        if all <= self.seq || count_loss_tokens(&self.words[range.clone()]) < all {
            documents.extend(self.truncated(range));
            return;
        }
        self.tally.split += 1;
        self.tally.loss_tokens += all;
        // The last target of a document is the first token of the next.
        let end = |start: usize| range.end.min(start + self.seq + 1);
        let pieces = range.clone().take(all).step_by(self.seq);
        documents.extend(pieces.map(|start| Document::of(start..end(start))));
    }
}

/// Counts tokens with loss.
fn count_loss_tokens(words: &[u32]) -> usize {
    words.iter().filter(|word| **word & HAS_LOSS != 0).count()
}

/// Packs documents into sequences of at most `seq` tokens by best-fit decreasing: longest first,
/// each into the fullest sequence that fits it.
///
/// Source: Ding et al., "Fewer Truncations Improve Language Modeling", arXiv 2404.10830.
fn best_fit(mut documents: Vec<Document>, seq: usize) -> Arrangement {
    documents.sort_by_key(|document| Reverse(document.tokens));
    // The sequence of each document.
    let mut places: Vec<usize> = Vec::with_capacity(documents.len());
    // Free tokens of sequences, and their numbers.
    let mut free: BTreeSet<(usize, usize)> = BTreeSet::new();
    let mut ends: Vec<usize> = Vec::new();
    for document in &documents {
        let tokens = document.tokens as usize;
        let best = free.range((tokens, 0)..).next().copied();
        let (capacity, number) = best.unwrap_or((seq, ends.len()));
        if number == ends.len() {
            ends.push(0);
        }
        ends[number] += 1;
        places.push(number);
        free.remove(&(capacity, number));
        free.insert((capacity - tokens, number));
    }
    // Convert counts to ends, and sort documents stably by their sequence.
    let mut sum = 0;
    for end in &mut ends {
        sum += *end;
        *end = sum;
    }
    let mut ordered: Vec<(usize, Document)> = places.into_iter().zip(documents).collect();
    ordered.sort_by_key(|(place, _)| *place);
    Arrangement { documents: ordered.into_iter().map(|(_, one)| one).collect(), ends }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn documents(lengths: &[usize]) -> Vec<Document> {
        lengths.iter().map(|length| Document::of(0..length + 1)).collect()
    }

    fn packed(lengths: &[usize], seq: usize) -> Vec<Vec<u32>> {
        let found = best_fit(documents(lengths), seq);
        let tokens = |document: &Document| document.tokens;
        (0..found.len()).map(|at| found.sequence(at).iter().map(tokens).collect()).collect()
    }

    #[test]
    fn documents_go_to_the_fullest_sequence_that_fits() {
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
        let sequences = packed(&lengths, 64);
        let mut found: Vec<usize> = sequences.concat().iter().map(|&one| one as usize).collect();
        let mut expected = lengths.clone();
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected);
        assert!(sequences.iter().all(|documents| documents.iter().sum::<u32>() <= 64));
        let least = lengths.iter().sum::<usize>().div_ceil(64);
        assert!(sequences.len() <= least + least / 50 + 1, "{} for {least}", sequences.len());
    }
}
