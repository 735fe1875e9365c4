//! Examples in sequences, in another order each epoch.

use std::sync::{Mutex, PoisonError};

use super::batch::{Batch, require_known};
use super::layout::Sequence;
use super::order::{generator, shuffled};
use super::{DataError, Example, IGNORED_TARGET, Layout, Tally};
use crate::digest::digest_of_words;
use crate::error::Result;

/// Separates the order of sequences from other choices.
const ORDER: u64 = 0x6f72_6465_7200_0000;

/// Examples, laid out in sequences of equal length.
///
/// An epoch has each sequence once, in an order that the seed and the number of the epoch decide.
/// Steps take sequences one after the other and go on with the next epoch where one ends.
#[derive(Debug)]
pub struct Examples {
    sequences: Vec<Sequence>,
    layout: Layout,
    tally: Tally,
    fingerprint: String,
    /// The order of the epoch that was asked for last.
    order: Mutex<Order>,
}

#[derive(Debug, Default)]
struct Order {
    of: Option<(u64, u64)>,
    places: Vec<usize>,
}

impl Examples {
    /// Lays `examples` out.
    ///
    /// # Errors
    /// [`DataError::NothingToLearn`] when they have nothing to learn, or nothing that fits.
    pub fn new(examples: Vec<Example>, layout: Layout) -> Result<Self, DataError> {
        let (sequences, tally) = layout.lay_out(examples)?;
        // Lengths decide the order of sums.
        let lengths: Vec<u32> = layout.lengths.all().map(|length| length as u32).collect();
        // With the length in front no two lists of sequences are the same numbers.
        let counts: Vec<u32> = sequences.iter().map(|one| one.tokens.len() as u32).collect();
        let numbers = sequences
            .iter()
            .zip(&counts)
            .flat_map(|(one, count)| [std::slice::from_ref(count), &one.tokens, &one.targets]);
        let fingerprint = digest_of_words(std::iter::once(lengths.as_slice()).chain(numbers));
        Ok(Self { sequences, layout, tally, fingerprint, order: Mutex::default() })
    }

    /// What became of the examples.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// How they are laid out.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// SHA-256 of the sequences, in hexadecimal digits.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// The first tokens of the first sequence, at most `len`.
    pub fn first(&self, len: usize) -> &[u32] {
        let tokens = self.sequences.first().map_or(&[][..], |one| &one.tokens);
        &tokens[..len.min(tokens.len())]
    }

    /// Checks that the sequences have `seq` tokens.
    ///
    /// # Errors
    /// [`DataError::OtherSeq`] when they were laid out otherwise.
    pub fn require(&self, seq: usize) -> Result<()> {
        let found = self.layout.lengths.seq();
        if found == seq { Ok(()) } else { Err(DataError::OtherSeq { found, asked: seq }.into()) }
    }

    /// Checks that a model of `vocab` tokens knows all tokens.
    ///
    /// # Errors
    /// [`DataError::OutsideVocabulary`] with the first one that it does not know.
    pub fn require_vocab(&self, vocab: usize) -> Result<()> {
        for (number, Sequence { tokens, targets }) in self.sequences.iter().enumerate() {
            let part = || format!("sequence {number}");
            require_known(tokens, vocab, part)?;
            // The last token of an example is a target alone.
            let last = targets.last().filter(|target| **target != IGNORED_TARGET);
            require_known(last.map_or(&[], std::slice::from_ref), vocab, part)?;
        }
        Ok(())
    }

    /// The batch of `step`, counted from 0, filled up to the shortest of the layout's lengths that
    /// holds its longest sequence.
    ///
    /// # Errors
    /// [`DataError::OtherSeq`] when the sequences were laid out otherwise.
    pub fn batch(&self, [batch, seq]: [usize; 2], seed: u64, step: u32) -> Result<Batch> {
        self.require(seq)?;
        let first = u64::from(step) * batch as u64;
        let all = self.sequences.len() as u64;
        let place = |number: u64| self.place(seed, number / all, (number % all) as usize);
        let places: Vec<_> = (first..first + batch as u64).map(place).collect();
        let longest = places.iter().map(|&place| self.sequences[place].tokens.len()).max();
        let length = self.layout.lengths.fit(longest.unwrap_or(seq));
        Ok(self.filled(length, places.into_iter().map(Some)))
    }

    /// The sequences in the order of the file: batch `index` of them, or `None` behind the last.
    ///
    /// # Errors
    /// [`DataError::OtherSeq`] when the sequences were laid out otherwise.
    pub fn in_order(&self, [batch, seq]: [usize; 2], index: usize) -> Result<Option<Batch>> {
        self.require(seq)?;
        let (first, all) = (index * batch, self.sequences.len());
        let place = |place: usize| (place < all).then_some(place);
        Ok((first < all).then(|| self.filled(seq, (first..first + batch).map(place))))
    }

    /// Where the sequence lies that is number `at` of an epoch.
    fn place(&self, seed: u64, epoch: u64, at: usize) -> usize {
        // Whoever panicked with the lock held left an order that is whole or will be made anew.
        let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        if order.of != Some((seed, epoch)) {
            let places = shuffled(generator(seed, ORDER, epoch), self.sequences.len());
            *order = Order { of: Some((seed, epoch)), places };
        }
        order.places[at]
    }

    /// A batch of the sequences at `places`, each filled up to `length` tokens; without a place
    /// nothing is learned.
    fn filled(&self, length: usize, places: impl Iterator<Item = Option<usize>>) -> Batch {
        let pad = self.layout.pad;
        let mut batch = Batch { tokens: Vec::new(), targets: Vec::new() };
        for (row, place) in places.enumerate() {
            if let Some(place) = place {
                let Sequence { tokens, targets } = &self.sequences[place];
                batch.tokens.extend_from_slice(tokens);
                batch.targets.extend_from_slice(targets);
            }
            batch.tokens.resize((row + 1) * length, pad);
            batch.targets.resize((row + 1) * length, IGNORED_TARGET);
        }
        batch
    }
}
