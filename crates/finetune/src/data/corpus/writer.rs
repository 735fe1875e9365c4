//! Writing tokenized data, to memory or to a file.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;

use super::format::{FileKey, Header, hash_ends, hash_words, padding};
use super::{Corpus, HAS_LOSS, Storage};
use crate::files::file_in;

/// Writes words in order, to memory or to a file. Ends of examples always stay in memory.
#[derive(Debug)]
pub(in super::super) struct CorpusWriter {
    target: Target,
    hash: Sha256,
    words: u64,
    ends: Vec<u64>,
    largest: u32,
}

#[derive(Debug)]
enum Target {
    Memory(Vec<u32>),
    File(BufWriter<NamedTempFile>),
}

impl CorpusWriter {
    /// Returns a writer to memory.
    pub(in super::super) fn in_memory() -> Self {
        Self::to(Target::Memory(Vec::new()))
    }

    /// Returns a writer to a temporary file in `folder`.
    pub(in super::super) fn in_folder(folder: &Path) -> io::Result<Self> {
        let mut file = BufWriter::with_capacity(1 << 20, file_in(folder)?);
        file.write_all(bytemuck::bytes_of(&Header::default()))?;
        Ok(Self::to(Target::File(file)))
    }

    fn to(target: Target) -> Self {
        Self { target, hash: Sha256::new(), words: 0, ends: Vec::new(), largest: 0 }
    }

    /// Appends words.
    pub(in super::super) fn push(&mut self, words: &[u32]) -> io::Result<()> {
        hash_words(&mut self.hash, words);
        self.words += words.len() as u64;
        let largest = words.iter().map(|word| word & !HAS_LOSS).max();
        self.largest = self.largest.max(largest.unwrap_or(0));
        match &mut self.target {
            Target::Memory(all) => all.extend_from_slice(words),
            Target::File(file) => file.write_all(bytemuck::cast_slice(words))?,
        }
        Ok(())
    }

    /// Ends an example.
    pub(in super::super) fn end(&mut self) {
        self.ends.push(self.words);
    }

    /// Returns the corpus in memory.
    ///
    /// # Panics
    /// If the writer writes to a file.
    pub(in super::super) fn into_memory(self) -> Corpus {
        let (digest, ends, largest) = (self.digest(), self.ends, self.largest);
        let Target::Memory(words) = self.target else { panic!("the words are in a file") };
        Corpus { storage: Storage::Memory { words, ends }, digest, largest }
    }

    /// Completes the file with `key` and atomically moves it to `path`.
    ///
    /// # Panics
    /// If the writer writes to memory.
    pub(in super::super) fn persist(self, path: &Path, key: &FileKey) -> io::Result<()> {
        let digest = self.digest();
        let Target::File(mut file) = self.target else { panic!("the words are in memory") };
        // The ends are aligned to 8 bytes.
        file.write_all(&vec![0; padding(self.words) as usize])?;
        file.write_all(bytemuck::cast_slice(&self.ends))?;
        let header = Header::new([self.words, self.ends.len() as u64], self.largest);
        let header = header.sealed(key, digest);
        let mut file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        io::Seek::seek(&mut file, io::SeekFrom::Start(0))?;
        file.write_all(bytemuck::bytes_of(&header))?;
        file.as_file().sync_all()?;
        file.persist(path).map_err(|error| error.error)?;
        Ok(())
    }

    fn digest(&self) -> [u8; 32] {
        let mut hash = self.hash.clone();
        hash_ends(&mut hash, &self.ends);
        hash.finalize().into()
    }
}
