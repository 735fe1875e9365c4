//! Tokenized data: the tokens of a text, or of all examples, in memory or in a mapped file.
//!
//! Each 32-bit word is a token; in examples, the highest bit marks tokens with loss.

mod format;
mod mapped;
mod writer;

pub(super) use format::FileKey;
pub(super) use mapped::open;
pub(super) use writer::CorpusWriter;

use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;

use memmap2::Mmap;

use super::DataError;

/// The bit that marks a token with loss. All tokens are smaller.
pub(super) const HAS_LOSS: u32 = 1 << 31;

/// The tokens of a text, or of examples.
#[derive(Debug)]
pub(super) struct Corpus {
    storage: Storage,
    /// SHA-256 of the words, followed by the ends of the examples, both little-endian.
    digest: [u8; 32],
    /// The largest token.
    largest: u32,
}

#[derive(Debug)]
enum Storage {
    Memory {
        words: Vec<u32>,
        ends: Vec<u64>,
    },
    /// A file of which `words` and `ends` are aligned and complete.
    Mapped {
        map: Mmap,
        file: File,
        path: PathBuf,
        words: Range<usize>,
        ends: Range<usize>,
    },
}

impl Corpus {
    /// Checks that the mapped file still has its length: an access beyond its end would end the
    /// process.
    ///
    /// # Errors
    /// [`DataError::CacheTruncated`] if it has not.
    pub(super) fn require_length(&self) -> Result<(), DataError> {
        let Storage::Mapped { map, file, path, .. } = &self.storage else { return Ok(()) };
        match file.metadata() {
            Ok(found) if found.len() >= map.len() as u64 => Ok(()),
            _ => Err(DataError::CacheTruncated { path: path.clone() }),
        }
    }

    /// The words of all examples.
    pub(super) fn words(&self) -> &[u32] {
        match &self.storage {
            Storage::Memory { words, .. } => words,
            Storage::Mapped { map, words, .. } => bytemuck::cast_slice(&map[words.clone()]),
        }
    }

    /// The end of each example in the words; empty for a text.
    fn ends(&self) -> &[u64] {
        match &self.storage {
            Storage::Memory { ends, .. } => ends,
            Storage::Mapped { map, ends, .. } => bytemuck::cast_slice(&map[ends.clone()]),
        }
    }

    /// Number of examples.
    pub(super) fn examples(&self) -> usize {
        self.ends().len()
    }

    /// The range of an example in the words.
    pub(super) fn example(&self, number: usize) -> Range<usize> {
        let start = number.checked_sub(1).map_or(0, |before| self.ends()[before]);
        start as usize..self.ends()[number] as usize
    }

    /// SHA-256 of the content.
    pub(super) fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// Whether all tokens are below `vocab`.
    pub(super) fn is_within(&self, vocab: usize) -> bool {
        (self.largest as usize) < vocab
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::format::HEADER;
    use super::*;

    fn written(path: &Path, key: &FileKey) {
        let mut writer = CorpusWriter::in_folder(path.parent().unwrap()).unwrap();
        writer.push(&[1, 7 | HAS_LOSS, 3]).unwrap();
        writer.end();
        writer.push(&[5, 9 | HAS_LOSS]).unwrap();
        writer.end();
        writer.persist(path, key).unwrap();
    }

    #[test]
    fn a_file_has_the_words_and_digest_of_memory() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        assert!(open(&path, &[1; 32]).unwrap().is_none());
        written(&path, &[1; 32]);
        let mapped = open(&path, &[1; 32]).unwrap().unwrap();
        let mut writer = CorpusWriter::in_memory();
        writer.push(&[1, 7 | HAS_LOSS, 3]).unwrap();
        writer.end();
        writer.push(&[5, 9 | HAS_LOSS]).unwrap();
        writer.end();
        let memory = writer.into_memory();
        assert_eq!((mapped.words(), mapped.ends()), (memory.words(), memory.ends()));
        assert_eq!((mapped.digest(), mapped.example(1)), (memory.digest(), 3..5));
        assert!(mapped.is_within(10) && !mapped.is_within(9) && memory.is_within(10));
        let empty = CorpusWriter::in_folder(folder.path()).unwrap();
        empty.persist(&path, &[2; 32]).unwrap();
        assert!(open(&path, &[2; 32]).unwrap().unwrap().words().is_empty());
    }

    #[test]
    fn a_damaged_incomplete_or_other_file_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        written(&path, &[1; 32]);
        let error = open(&path, &[2; 32]).unwrap_err();
        assert!(error.to_string().contains("other data"), "{error}");
        let whole = std::fs::read(&path).unwrap();
        // Padding has no meaning.
        let padding = HEADER + 20..HEADER + 24;
        for at in (0..whole.len()).filter(|at| !padding.contains(at)) {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x40;
            std::fs::write(&path, damaged).unwrap();
            assert!(open(&path, &[1; 32]).is_err(), "byte {at}");
        }
        for len in 0..whole.len() {
            std::fs::write(&path, &whole[..len]).unwrap();
            assert!(open(&path, &[1; 32]).is_err(), "{len} bytes");
        }
        std::fs::write(&path, [&whole[..], b"more"].concat()).unwrap();
        assert!(open(&path, &[1; 32]).is_err());
    }
}
