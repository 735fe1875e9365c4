//! A text as a stream of byte tokens, and the batch of each step.
//!
//! The batch of a step is a function of the seed and the step alone, so that a resumed run sees
//! exactly what an uninterrupted one would have seen.

use std::path::{Path, PathBuf};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
pub use retrograph_kernels::ops::IGNORED_TARGET;
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};

/// Separates the streams of the batches from those of the weights.
const BATCH_STREAM: u64 = 0x6261_7463_6865_7300;

/// A text as tokens.
#[derive(Clone, Debug)]
pub struct TextData {
    bytes: Vec<u8>,
    fingerprint: String,
}

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

impl TextData {
    /// Reads a file.
    ///
    /// # Errors
    /// [`Error::ReadText`] when it cannot be read.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path)
            .map_err(|source| Error::ReadText { path: PathBuf::from(path), source })?;
        Ok(Self::from_bytes(bytes))
    }

    /// Takes bytes as they are.
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        let fingerprint = hex(&Sha256::digest(&bytes));
        Self { bytes, fingerprint }
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// SHA-256 of the text, in hexadecimal digits.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// The first `len` bytes, or all of them.
    pub fn head(&self, len: usize) -> &[u8] {
        &self.bytes[..len.min(self.bytes.len())]
    }

    /// The tokens at the places `range`.
    ///
    /// # Panics
    /// When the text is shorter.
    pub fn tokens(&self, range: std::ops::Range<usize>) -> Vec<u32> {
        self.bytes[range].iter().copied().map(u32::from).collect()
    }

    /// Checks that a sequence of `seq` tokens and the token after it fit into the text.
    ///
    /// # Errors
    /// [`Error::TextTooShort`] when they do not.
    pub fn require(&self, seq: usize) -> Result<()> {
        if self.len() > seq {
            return Ok(());
        }
        Err(Error::TextTooShort { tokens: self.len(), seq, needed: seq + 1 })
    }

    /// The batch of `step`, counted from 0: windows at places drawn from `seed` and `step`.
    ///
    /// # Errors
    /// [`Error::TextTooShort`] when one sequence does not fit.
    pub fn batch(&self, [batch, seq]: [usize; 2], seed: u64, step: u32) -> Result<Batch> {
        self.require(seq)?;
        let mut generator = ChaCha8Rng::seed_from_u64(seed ^ BATCH_STREAM);
        generator.set_stream(u64::from(step));
        let places = (self.len() - seq) as u64;
        let mut tokens = Vec::with_capacity(batch * seq);
        let mut targets = Vec::with_capacity(batch * seq);
        for _ in 0..batch {
            // The product of a uniform 64-bit fraction and the number of places, rounded down.
            let start = (u128::from(generator.next_u64()) * u128::from(places)) >> 64;
            let window = &self.bytes[start as usize..][..seq + 1];
            tokens.extend(window[..seq].iter().copied().map(u32::from));
            targets.extend(window[1..].iter().copied().map(u32::from));
        }
        Ok(Batch { tokens, targets })
    }
}

/// Lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(len: usize) -> TextData {
        TextData::from_bytes((0..len).map(|i| (i % 251) as u8).collect())
    }

    #[test]
    fn targets_are_the_tokens_shifted_by_one() {
        let batch = data(1000).batch([3, 16], 1, 0).unwrap();
        for (tokens, targets) in batch.tokens.chunks(16).zip(batch.targets.chunks(16)) {
            assert_eq!(tokens[1..], targets[..15]);
        }
    }

    #[test]
    fn seed_and_step_alone_decide() {
        let data = data(5000);
        let at = |seed, step| data.batch([2, 32], seed, step).unwrap();
        assert_eq!(at(1, 5), at(1, 5));
        assert_ne!(at(1, 5), at(1, 6));
        assert_ne!(at(1, 5), at(2, 5));
    }

    #[test]
    fn the_shortest_text_has_one_place_and_a_shorter_one_is_an_error() {
        let batch = data(17).batch([4, 16], 9, 3).unwrap();
        assert!(batch.tokens.chunks(16).all(|row| row[0] == 0));
        let error = data(16).batch([4, 16], 9, 3).unwrap_err();
        assert!(matches!(error, Error::TextTooShort { tokens: 16, needed: 17, .. }));
    }
}
