//! SHA-256 digests of data, and their hexadecimal form.

use std::io::{self, Read};
use std::path::Path;

use retrograph_runtime::open_regular;
use sha2::{Digest, Sha256};

/// SHA-256 of a file that was read.
#[derive(Clone, Debug)]
pub(crate) enum FileDigest {
    /// Computed while the file was read.
    Known([u8; 32]),
    /// Computed on demand.
    #[cfg(feature = "parquet")]
    Unread(std::path::PathBuf),
}

impl FileDigest {
    /// Returns the digest.
    pub(crate) fn get(&self) -> io::Result<[u8; 32]> {
        match self {
            Self::Known(digest) => Ok(*digest),
            #[cfg(feature = "parquet")]
            Self::Unread(path) => digest_of_file(path),
        }
    }
}

/// Returns SHA-256 of a regular file.
pub(crate) fn digest_of_file(path: &Path) -> io::Result<[u8; 32]> {
    let (mut file, mut hash) = (open_regular(path)?, Sha256::new());
    let mut part = vec![0; 1 << 20];
    loop {
        match file.read(&mut part) {
            Ok(0) => return Ok(hash.finalize().into()),
            Ok(len) => hash.update(&part[..len]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
            Err(error) => return Err(error),
        }
    }
}

/// Returns lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the SHA-256 digest of little-endian words.
pub(crate) fn digest_of_words(numbers: impl IntoIterator<Item: AsRef<[u32]>>) -> String {
    let mut hash = Sha256::new();
    for part in numbers {
        part.as_ref().iter().for_each(|number| hash.update(number.to_le_bytes()));
    }
    hex(&hash.finalize())
}
