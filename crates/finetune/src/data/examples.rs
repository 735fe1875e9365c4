//! Examples arranged in sequences, which are shuffled in each epoch.

use std::sync::Arc;

use super::batch::{Batch, require_known, require_targets, tokens_in};
use super::corpus::{Corpus, CorpusWriter, HAS_LOSS};
use super::layout::{Arrangement, Document};
use super::order::EpochOrder;
use super::{DataError, Example, IGNORED_TARGET, Layout, Tally};
use crate::digest::digest_of_words;
use crate::error::Result;

/// Purpose of the random numbers that order the sequences.
const ORDER: u64 = 0x6f72_6465_7200_0000;

/// Examples arranged in sequences.
///
/// An epoch has each sequence once, in an order that depends on the seed and the number of the
/// epoch. Steps take consecutive sequences and continue with the next epoch.
#[derive(Debug)]
pub struct Examples {
    corpus: Arc<Corpus>,
    arrangement: Arrangement,
    layout: Layout,
    tally: Tally,
    fingerprint: String,
    order: EpochOrder,
    /// Number of consecutive sequences that stay together: 2 for pairs, else 1.
    group: usize,
}

impl Examples {
    /// Arranges `examples` as sequences.
    ///
    /// # Errors
    /// [`DataError::NoTokensWithLoss`] if no token with loss fits into a sequence, and
    /// [`DataError::Shape`] if a sequence has no tokens or too many.
    pub fn new(examples: Vec<Example>, layout: Layout) -> Result<Self, DataError> {
        let mut writer = CorpusWriter::in_memory();
        // Writing to memory cannot fail.
        let written = examples.iter().try_for_each(|example| example.write(&mut writer));
        written.expect("memory takes all words");
        let numbers: Vec<usize> = (0..examples.len()).collect();
        Self::of(Arc::new(writer.into_memory()), &numbers, layout)
    }

    /// Arranges the examples of `corpus` with these `numbers` as sequences.
    pub(super) fn of(
        corpus: Arc<Corpus>,
        numbers: &[usize],
        layout: Layout,
    ) -> Result<Self, DataError> {
        let (arrangement, tally) = layout.lay_out(&corpus, numbers)?;
        Ok(Self::arranged(corpus, arrangement, tally, layout, 1))
    }

    /// Arranges the pairs of `corpus` with these `numbers` as padded sequences. A pair is two
    /// examples, the chosen one first.
    ///
    /// # Errors
    /// [`DataError::NoTokensWithLoss`] if no pair has tokens with loss in both sequences.
    pub(super) fn of_pairs(
        corpus: Arc<Corpus>,
        numbers: &[usize],
        layout: Layout,
    ) -> Result<Self, DataError> {
        let layout = Layout { packing: false, ..layout };
        let (arrangement, tally) = layout.lay_out_pairs(&corpus, numbers)?;
        Ok(Self::arranged(corpus, arrangement, tally, layout, 2))
    }

    fn arranged(
        corpus: Arc<Corpus>,
        arrangement: Arrangement,
        tally: Tally,
        layout: Layout,
        group: usize,
    ) -> Self {
        let fingerprint = fingerprint(&corpus, &arrangement, layout, group);
        let order = EpochOrder::new(ORDER);
        Self { corpus, arrangement, layout, tally, fingerprint, order, group }
    }

    /// Whether the sequences are pairs: chosen and rejected alternate.
    pub fn has_pairs(&self) -> bool {
        self.group > 1
    }

    /// Counts of examples, sequences and tokens.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The arrangement of the examples.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// SHA-256 of the examples and their arrangement, in hexadecimal.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Returns the first tokens of the first document of the first sequence, at most `len`.
    pub fn first(&self, len: usize) -> Vec<u32> {
        if self.arrangement.len() == 0 {
            return Vec::new();
        }
        let first = self.arrangement.sequence(0).first();
        first.map_or_else(Vec::new, |document| self.tokens(*document).take(len).collect())
    }

    fn tokens(&self, document: Document) -> impl Iterator<Item = u32> {
        self.corpus.words()[document.place()].iter().map(|word| word & !HAS_LOSS)
    }

    /// Returns the target of each token: the next token, or [`IGNORED_TARGET`].
    fn targets(&self, document: Document) -> impl Iterator<Item = u32> {
        let place = document.place();
        let target = |word: &u32| match word & HAS_LOSS {
            0 => IGNORED_TARGET,
            _ => word & !HAS_LOSS,
        };
        self.corpus.words()[place.start + 1..place.end + 1].iter().map(target)
    }

    /// Checks that the sequences have `seq` tokens.
    ///
    /// # Errors
    /// [`DataError::OtherSeq`] if they have another length.
    pub fn require(&self, seq: usize) -> Result<()> {
        let found = self.layout.lengths.seq();
        if found == seq { Ok(()) } else { Err(DataError::OtherSeq { found, asked: seq }.into()) }
    }

    /// Checks that all tokens are in a vocabulary of `vocab` tokens.
    ///
    /// # Errors
    /// [`DataError::OutsideVocabulary`] with the first one that is not.
    pub fn require_vocab(&self, vocab: usize) -> Result<()> {
        require_known(&[self.layout.pad], vocab, || "the padding".to_owned())?;
        if self.corpus.is_within(vocab) {
            return Ok(());
        }
        for number in 0..self.arrangement.len() {
            let documents = self.arrangement.sequence(number);
            let tokens: Vec<u32> = documents.iter().flat_map(|one| self.tokens(*one)).collect();
            require_known(&tokens, vocab, || format!("sequence {number}"))?;
            // The last token of an example is only a target.
            let targets = documents.iter().flat_map(|one| self.targets(*one));
            let targets: Vec<u32> = targets.collect();
            require_targets(&targets, vocab, || format!("the targets of sequence {number}"))?;
        }
        Ok(())
    }

    /// Returns the batch of `step`, counted from 0, padded to the shortest length of the layout
    /// that fits its longest sequence.
    ///
    /// # Errors
    /// [`DataError::OtherSeq`] if the sequences have another length, and [`DataError::Shape`].
    pub fn batch(&self, [batch, seq]: [usize; 2], seed: u64, step: u32) -> Result<Batch> {
        self.require(seq)?;
        self.corpus.require_length()?;
        tokens_in([batch, seq])?;
        let first = u64::from(step) * batch as u64;
        let (all, group) = (self.arrangement.len() / self.group, self.group as u64);
        let place = |number: u64| {
            let (number, member) = (number / group, (number % group) as usize);
            let (epoch, at) = (number / all as u64, (number % all as u64) as usize);
            self.order.place(seed, epoch, at, all) * self.group + member
        };
        let places: Vec<_> = (first..first + batch as u64).map(place).collect();
        let longest = places.iter().map(|&place| self.arrangement.tokens(place)).max();
        let length = self.layout.lengths.fit(longest.unwrap_or(seq));
        Ok(self.padded(length, places.into_iter().map(Some)))
    }

    /// Returns batch `index` of the sequences in file order; packed sequences are ordered by their
    /// longest documents. `None` after the last batch.
    ///
    /// # Errors
    /// [`DataError::OtherSeq`] if the sequences have another length, and [`DataError::Shape`].
    pub fn in_order(&self, [batch, seq]: [usize; 2], index: usize) -> Result<Option<Batch>> {
        self.require(seq)?;
        self.corpus.require_length()?;
        tokens_in([batch, seq])?;
        let all = self.arrangement.len();
        let place = |place: usize| (place < all).then_some(place);
        let first = index.checked_mul(batch).filter(|first| *first < all);
        Ok(first.map(|first| self.padded(seq, (first..first + batch).map(place))))
    }

    /// Returns a batch of the sequences at `places`, each padded to `length` tokens. `None` is a
    /// row of padding. In packed batches, each padding token is its own document.
    fn padded(&self, length: usize, places: impl Iterator<Item = Option<usize>>) -> Batch {
        let pad = self.layout.pad;
        let mut batch = Batch { tokens: Vec::new(), targets: Vec::new(), positions: None };
        let mut positions = Vec::new();
        for (row, place) in places.enumerate() {
            for document in place.map_or(&[][..], |place| self.arrangement.sequence(place)) {
                batch.tokens.extend(self.tokens(*document));
                batch.targets.extend(self.targets(*document));
                positions.extend(0..document.tokens);
            }
            batch.tokens.resize((row + 1) * length, pad);
            batch.targets.resize((row + 1) * length, IGNORED_TARGET);
            positions.resize((row + 1) * length, 0);
        }
        Batch { positions: self.layout.packing.then_some(positions), ..batch }
    }
}

/// Returns SHA-256 of everything that determines batches, except their seed.
fn fingerprint(corpus: &Corpus, arrangement: &Arrangement, layout: Layout, group: usize) -> String {
    // The lengths of batches change the order of sums and thus the bits of results.
    let mut first: Vec<u32> = layout.lengths.all().map(|length| length as u32).collect();
    first.extend([group as u32, u32::from(layout.packing), arrangement.len() as u32]);
    let content = corpus.digest().as_chunks().0;
    first.extend(content.iter().map(|four| u32::from_le_bytes(*four)));
    // A count before each sequence makes the words of different arrangements differ.
    let sequences = (0..arrangement.len()).map(|number| {
        let documents = arrangement.sequence(number);
        let count = std::iter::once(documents.len() as u32);
        count.chain(documents.iter().flat_map(|document| document.words())).collect()
    });
    digest_of_words(std::iter::once(first).chain(sequences))
}
