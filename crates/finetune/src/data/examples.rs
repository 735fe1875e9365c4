//! Examples as sequences, shuffled in each epoch.

use super::batch::{Batch, require_known};
use super::layout::Sequence;
use super::order::EpochOrder;
use super::{DataError, Example, IGNORED_TARGET, Layout, Tally};
use crate::digest::digest_of_words;
use crate::error::Result;

/// Purpose of the random numbers that order the sequences.
const ORDER: u64 = 0x6f72_6465_7200_0000;

/// Examples as sequences.
///
/// An epoch has each sequence once, in an order that depends on the seed and the number of the
/// epoch. Steps take consecutive sequences and continue with the next epoch.
#[derive(Debug)]
pub struct Examples {
    sequences: Vec<Sequence>,
    layout: Layout,
    tally: Tally,
    fingerprint: String,
    order: EpochOrder,
    /// Consecutive sequences that stay together: 2 for pairs, else 1.
    group: usize,
}

impl Examples {
    /// Arranges `examples` as sequences.
    ///
    /// # Errors
    /// [`DataError::NothingToLearn`] if no learned token fits into a sequence.
    pub fn new(examples: Vec<Example>, layout: Layout) -> Result<Self, DataError> {
        Ok(Self::of(layout.lay_out(examples)?, layout, 1))
    }

    /// Arranges pairs of examples, the chosen one first, as padded sequences.
    ///
    /// # Errors
    /// [`DataError::NothingToLearn`] if no pair has learned tokens in both sequences.
    pub fn pairs(pairs: Vec<[Example; 2]>, layout: Layout) -> Result<Self, DataError> {
        let layout = Layout { packing: false, ..layout };
        Ok(Self::of(layout.lay_out_pairs(pairs)?, layout, 2))
    }

    fn of((sequences, tally): (Vec<Sequence>, Tally), layout: Layout, group: usize) -> Self {
        // The lengths of batches change the order of sums, and thereby bits.
        let lengths: Vec<u32> = layout.lengths.all().map(|length| length as u32).collect();
        // With its length before each sequence, different lists have different words.
        let counts: Vec<u32> = sequences.iter().map(|one| one.tokens.len() as u32).collect();
        let numbers = sequences.iter().zip(&counts).flat_map(|(one, count)| {
            let documents = if layout.packing { one.documents.as_slice() } else { &[] };
            [std::slice::from_ref(count), &one.tokens, &one.targets, documents]
        });
        let groups = [group as u32];
        let groups = if group > 1 { groups.as_slice() } else { &[] };
        let first = [groups, &lengths].into_iter();
        let fingerprint = digest_of_words(first.chain(numbers));
        Self { sequences, layout, tally, fingerprint, order: EpochOrder::new(ORDER), group }
    }

    /// Whether the sequences are pairs: chosen and rejected in turns.
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

    /// SHA-256 of the sequences, in hexadecimal.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Returns the first tokens of the first document of the first sequence, at most `len`.
    pub fn first(&self, len: usize) -> &[u32] {
        let Some(Sequence { tokens, documents, .. }) = self.sequences.first() else { return &[] };
        let document = documents.first().map_or(0, |tokens| *tokens as usize);
        &tokens[..len.min(document)]
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
        for (number, Sequence { tokens, targets, .. }) in self.sequences.iter().enumerate() {
            require_known(tokens, vocab, || format!("sequence {number}"))?;
            // The last token of an example is only a target.
            let learned = |&target: &u32| if target == IGNORED_TARGET { 0 } else { target };
            let targets: Vec<u32> = targets.iter().map(learned).collect();
            require_known(&targets, vocab, || format!("the targets of sequence {number}"))?;
        }
        Ok(())
    }

    /// Returns the batch of `step`, counted from 0, padded to the shortest length of the layout
    /// that fits its longest sequence.
    ///
    /// # Errors
    /// [`DataError::OtherSeq`] if the sequences have another length.
    pub fn batch(&self, [batch, seq]: [usize; 2], seed: u64, step: u32) -> Result<Batch> {
        self.require(seq)?;
        let first = u64::from(step) * batch as u64;
        let (all, group) = (self.sequences.len() / self.group, self.group as u64);
        let place = |number: u64| {
            let (number, member) = (number / group, (number % group) as usize);
            let (epoch, at) = (number / all as u64, (number % all as u64) as usize);
            self.order.place((seed, epoch), at, all) * self.group + member
        };
        let places: Vec<_> = (first..first + batch as u64).map(place).collect();
        let longest = places.iter().map(|&place| self.sequences[place].tokens.len()).max();
        let length = self.layout.lengths.fit(longest.unwrap_or(seq));
        Ok(self.padded(length, places.into_iter().map(Some)))
    }

    /// Returns batch `index` of the sequences in order: of the file, or if they are packed, of
    /// their longest documents. `None` after the last.
    ///
    /// # Errors
    /// [`DataError::OtherSeq`] if the sequences have another length.
    pub fn in_order(&self, [batch, seq]: [usize; 2], index: usize) -> Result<Option<Batch>> {
        self.require(seq)?;
        let (first, all) = (index * batch, self.sequences.len());
        let place = |place: usize| (place < all).then_some(place);
        Ok((first < all).then(|| self.padded(seq, (first..first + batch).map(place))))
    }

    /// Returns a batch of the sequences at `places`, each padded to `length` tokens. `None` is a
    /// row of padding. In packed batches, each token of padding is a document of its own.
    fn padded(&self, length: usize, places: impl Iterator<Item = Option<usize>>) -> Batch {
        let pad = self.layout.pad;
        let mut batch = Batch { tokens: Vec::new(), targets: Vec::new(), positions: None };
        let mut positions = Vec::new();
        for (row, place) in places.enumerate() {
            if let Some(place) = place {
                let sequence = &self.sequences[place];
                batch.tokens.extend_from_slice(&sequence.tokens);
                batch.targets.extend_from_slice(&sequence.targets);
                positions.extend(sequence.positions());
            }
            batch.tokens.resize((row + 1) * length, pad);
            batch.targets.resize((row + 1) * length, IGNORED_TARGET);
            positions.resize((row + 1) * length, 0);
        }
        Batch { positions: self.layout.packing.then_some(positions), ..batch }
    }
}
