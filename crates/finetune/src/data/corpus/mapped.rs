//! Opening a file of tokenized data.
//!
//! Opening verifies the digests of header and content. It rejects files that are damaged,
//! incomplete, from a machine with another byte order, or of other data.

use std::io;
use std::path::Path;

use memmap2::Mmap;
use retrograph_runtime::open_regular;
use sha2::{Digest, Sha256};

use super::format::{FileKey, HEADER, Header, MAGIC, hash_ends, hash_words};
use super::{Corpus, HAS_LOSS, Storage};

/// Opens the data of `key`. `None` if there is no file.
///
/// # Errors
/// Why the file cannot be used: [`io::ErrorKind::InvalidData`] with a reason, or why it cannot be
/// read.
pub(in super::super) fn open(path: &Path, key: &FileKey) -> io::Result<Option<Corpus>> {
    let file = match open_regular(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    // SAFETY: `CorpusWriter` writes to temporary files and renames them, so it never changes a
    // mapped file. As for every mapped file, a program that changes or truncates it breaks this:
    // values could change, or an access could end the process. `Corpus::require_length` is called
    // before each batch.
    let map = unsafe { Mmap::map(&file) }?;
    let invalid = |reason: &str| io::Error::new(io::ErrorKind::InvalidData, reason);
    let header = map.get(..HEADER).ok_or_else(|| invalid("it has no header"))?;
    let header: Header = bytemuck::pod_read_unaligned(header);
    let (words, examples) = (header.words as usize, header.examples as usize);
    match header {
        Header { magic, .. } if magic != MAGIC => Err(invalid("it has another format")),
        _ if header.check != header.expected_check() => Err(invalid("its header is damaged")),
        _ if header.key != *key => Err(invalid("it belongs to other data")),
        _ if header.bytes() != Some(map.len() as u64) => Err(invalid("it is not complete")),
        _ => Ok(()),
    }?;
    let words = HEADER..HEADER + 4 * words;
    let ends = map.len() - 8 * examples..map.len();
    let largest = u32::try_from(header.largest).map_err(|_| invalid("its header is damaged"))?;
    let storage = Storage::Mapped { map, file, path: path.to_owned(), words, ends };
    let corpus = Corpus { storage, digest: header.digest, largest };
    if corpus.is_whole() { Ok(Some(corpus)) } else { Err(invalid("its content is damaged")) }
}

impl Corpus {
    /// Whether the content matches the digest in the header. Reads the whole content.
    fn is_whole(&self) -> bool {
        let (words, ends) = (self.words(), self.ends());
        let mut hash = Sha256::new();
        hash_words(&mut hash, words);
        hash_ends(&mut hash, ends);
        let digest: [u8; 32] = hash.finalize().into();
        let largest = words.iter().map(|word| word & !HAS_LOSS).max().unwrap_or(0);
        let ascending =
            ends.is_sorted() && ends.last().is_none_or(|&end| end == words.len() as u64);
        digest == self.digest && largest == self.largest && ascending
    }
}
