//! The file of tokenized data: a header, words of 32 bits, and ends of 64 bits.
//!
//! Numbers have the byte order of the machine. The header names key and content by SHA-256.

use bytemuck::{Pod, Zeroable};
use sha2::{Digest, Sha256};

/// SHA-256 of everything that determines the content.
pub(in super::super) type FileKey = [u8; 32];

/// `RGTOKEN` and the format version as a number, so that another byte order does not match.
pub(super) const MAGIC: u64 = u64::from_be_bytes(*b"RGTOKEN\x01");

/// The start of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Header {
    pub(super) magic: u64,
    pub(super) words: u64,
    pub(super) examples: u64,
    /// The largest token.
    pub(super) largest: u64,
    pub(super) key: FileKey,
    /// SHA-256 of words and ends.
    pub(super) digest: [u8; 32],
    /// SHA-256 of the preceding fields.
    pub(super) check: [u8; 32],
}

pub(super) const HEADER: usize = size_of::<Header>();

impl Header {
    pub(super) fn new([words, examples]: [u64; 2], largest: u32) -> Self {
        Self { magic: MAGIC, words, examples, largest: largest.into(), ..Self::default() }
    }

    pub(super) fn sealed(self, key: &FileKey, digest: [u8; 32]) -> Self {
        let header = Self { key: *key, digest, ..self };
        Self { check: header.expected_check(), ..header }
    }

    pub(super) fn expected_check(&self) -> [u8; 32] {
        Sha256::digest(&bytemuck::bytes_of(self)[..HEADER - size_of_val(&self.check)]).into()
    }

    /// Returns the size of the file in bytes; `None` on overflow.
    pub(super) fn bytes(&self) -> Option<u64> {
        let words = self.words.checked_mul(4)?.checked_add(padding(self.words))?;
        words.checked_add(self.examples.checked_mul(8)?)?.checked_add(HEADER as u64)
    }
}

/// Returns the padding between words and ends in bytes.
pub(super) fn padding(words: u64) -> u64 {
    4 * (words % 2)
}

/// Number of words that are converted to bytes at a time.
const WORDS: usize = 1024;

pub(super) fn hash_words(hash: &mut Sha256, words: &[u32]) {
    let mut bytes = [0; 4 * WORDS];
    for part in words.chunks(WORDS) {
        for (bytes, word) in bytes.chunks_exact_mut(4).zip(part) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        hash.update(&bytes[..4 * part.len()]);
    }
}

pub(super) fn hash_ends(hash: &mut Sha256, ends: &[u64]) {
    ends.iter().for_each(|end| hash.update(end.to_le_bytes()));
}
