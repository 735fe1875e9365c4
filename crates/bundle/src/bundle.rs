//! Bundles: files of compiled images, for deployments and for the disk cache.
//!
//! A bundle holds the code of any number of images for any number of SM targets. Code is found by
//! the SHA-256 of its PTX, so code of changed images is not found. A checksum (XXH3, 128 bits)
//! verifies it when it is read.
//!
//! # Format
//!
//! | Bytes | Content |
//! |---|---|
//! | 8 | `RTGCODE` and a line feed |
//! | 4 | version of the format, 2 |
//! | 4 | length of the index |
//! | 32 | SHA-256 of the index |
//! | | the index: JSON, a list of image, target, maker, offset, length, checksum |
//! | | the code, from offset 0 |
//!
//! Numbers are little-endian. A checksum detects damage, not tampering: loading code executes it.
//! Protect bundles like programs.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use retrograph_ptx::{ImageForm, SmTarget};
use sha2::{Digest as _, Sha256};

use crate::contents::Contents;
use crate::digest::Digest;
use crate::index::{IndexEntry, checksum};
use crate::regular_file::open_regular;

pub(crate) const MAGIC: &[u8; 8] = b"RTGCODE\n";
pub(crate) const FORMAT: u32 = 2;
const HEAD_BYTES: usize = 48;
/// The longest index that is read or written.
pub(crate) const MAX_INDEX_BYTES: u32 = 64 << 20;
/// The longest code of one image that is read or written; the images of the workspace take less
/// than a megabyte each.
pub(crate) const MAX_CODE_BYTES: u64 = 1 << 30;

/// A bundle that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BundleError {
    /// The file cannot be read or written.
    #[error("the bundle {} cannot be accessed: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file is not a bundle.
    #[error("{} is not a bundle of compiled kernels", path.display())]
    NotABundle {
        /// The file.
        path: PathBuf,
    },
    /// The file has an unsupported format.
    #[error(
        "the bundle {} has format {found}, but only {FORMAT} is supported; make it again",
        path.display()
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
    /// The file is truncated.
    #[error(
        "the bundle {} ends after {found} of {needed} bytes; copy it again", path.display()
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Bytes found.
        found: u64,
        /// Bytes expected.
        needed: u64,
    },
    /// A checksum or the index is wrong.
    #[error("the bundle {} is damaged: {what}; copy or make it again", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The defect.
        what: String,
    },
    /// The entries are too large to be read back; nothing was written.
    #[error(
        "the bundle {} was not written: {what} has {bytes} bytes, but at most {limit} can be read; \
         split the bundle",
        path.display()
    )]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The code of an entry, or the index.
        what: String,
        /// Its length in bytes.
        bytes: u64,
        /// The largest length in bytes.
        limit: u64,
    },
}

/// An open bundle. Clones share it. Code is read on demand.
#[derive(Clone, Debug)]
pub struct Bundle {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    contents: Contents,
    data_start: u64,
    listed: Vec<IndexEntry>,
}

impl Bundle {
    /// Opens the bundle at `path` and checks its index.
    ///
    /// # Errors
    /// [`BundleError`] if the file is not a bundle, damaged, truncated, or of another format.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, BundleError> {
        let path = path.as_ref();
        let file = open_regular(path).map_err(|source| io(path, source))?;
        Self::from_file(path, file)
    }

    /// Opens the bundle in `file`, which is open at `path`, and checks its index.
    ///
    /// # Errors
    /// As [`Bundle::open`].
    pub fn from_file(path: impl AsRef<Path>, file: File) -> Result<Self, BundleError> {
        Self::read(path.as_ref(), Contents::File(Mutex::new(file)))
    }

    /// Opens the bundle in `bytes`, such as a file that is part of the program by `include_bytes!`.
    ///
    /// # Errors
    /// As [`Bundle::open`]; the path is `a bundle in the program`.
    pub fn from_static(bytes: &'static [u8]) -> Result<Self, BundleError> {
        Self::read(Path::new("a bundle in the program"), Contents::Static(bytes))
    }

    /// Opens the bundle that is part of the program: the file with the absolute path that
    /// `RETROGRAPH_BUNDLE` had when the program was built.
    ///
    /// # Errors
    /// As [`Bundle::from_static`].
    #[cfg(feature = "embedded-bundle")]
    pub fn embedded() -> Result<Self, BundleError> {
        Self::from_static(include_bytes!(env!("RETROGRAPH_BUNDLE")))
    }

    /// The file, or a description of a bundle in the program.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// Number of images, counted per target.
    pub fn len(&self) -> usize {
        self.inner.listed.len()
    }

    /// Whether there are no images.
    pub fn is_empty(&self) -> bool {
        self.inner.listed.is_empty()
    }

    /// Its entries, in the order in which they were written.
    pub fn index(&self) -> &[IndexEntry] {
        &self.inner.listed
    }

    /// The targets with code, each once.
    pub fn targets(&self) -> Vec<SmTarget> {
        let parsed = self.inner.listed.iter().filter_map(|listed| listed.parsed);
        let mut targets: Vec<_> = parsed.map(|(_, target)| target).collect();
        targets.sort_unstable();
        targets.dedup();
        targets
    }

    /// Returns the code for the PTX with this SHA-256 that runs on `device`, or `None`. If there
    /// are several, returns the code for the newest target.
    ///
    /// # Errors
    /// [`BundleError`] if the file is damaged.
    pub fn code(&self, image: &Digest, device: SmTarget) -> Result<Option<Vec<u8>>, BundleError> {
        let Some(listed) = self.find(image, device) else { return Ok(None) };
        let mut code = Vec::new();
        self.read_code(listed, &mut code)?;
        Ok(Some(code))
    }

    /// The entry with the code that [`Bundle::code`] reads.
    pub fn find(&self, image: &Digest, device: SmTarget) -> Option<&IndexEntry> {
        let fitting = |listed: &&IndexEntry| {
            listed.parsed.is_some_and(|(digest, target)| {
                digest == *image && target.require(ImageForm::Cubin, device).is_ok()
            })
        };
        self.inner.listed.iter().filter(fitting).max_by_key(|listed| listed.parsed)
    }

    /// Reads the code of an entry of this bundle to the start of `space`, which grows as needed,
    /// and verifies its checksum. Reusing `space` for many images saves page faults.
    ///
    /// # Errors
    /// [`BundleError`] if the file is damaged, or the entry belongs to another bundle.
    pub fn read_code<'s>(
        &self,
        listed: &IndexEntry,
        space: &'s mut Vec<u8>,
    ) -> Result<&'s [u8], BundleError> {
        let Inner { path, contents, data_start, .. } = &*self.inner;
        // The length was compared with the length of the file.
        let length = listed.length as usize;
        space.resize(space.len().max(length), 0);
        let code = &mut space[..length];
        let read = contents.read(data_start + listed.offset, code);
        read.map_err(|source| io(path, source))?;
        if checksum(code) != listed.checksum {
            let what = format!("the code of `{}` for {}", listed.name, listed.target);
            return Err(BundleError::Corrupt { path: path.clone(), what });
        }
        Ok(code)
    }

    fn read(path: &Path, contents: Contents) -> Result<Self, BundleError> {
        let failed = |source| io(path, source);
        let found = contents.len().map_err(failed)?;
        let require = |needed: u64| match found < needed {
            true => Err(BundleError::Truncated { path: path.to_owned(), found, needed }),
            false => Ok(()),
        };
        let mut head = [0; HEAD_BYTES];
        let there = found.min(HEAD_BYTES as u64) as usize;
        contents.read(0, &mut head[..there]).map_err(failed)?;
        if !head.starts_with(MAGIC) {
            return Err(BundleError::NotABundle { path: path.to_owned() });
        }
        require(HEAD_BYTES as u64)?;
        let number = |at| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        if number(8) != FORMAT {
            return Err(BundleError::Format { path: path.to_owned(), found: number(8) });
        }
        let data_start = HEAD_BYTES as u64 + u64::from(number(12));
        require(data_start)?;
        let corrupt = |what: String| BundleError::Corrupt { path: path.to_owned(), what };
        if number(12) > MAX_INDEX_BYTES {
            return Err(corrupt(format!("the length of the index, {} bytes", number(12))));
        }
        let mut index = vec![0; number(12) as usize];
        contents.read(HEAD_BYTES as u64, &mut index).map_err(failed)?;
        if Sha256::digest(&index)[..] != head[16..] {
            return Err(corrupt("the checksum of the index".to_owned()));
        }
        let mut listed: Vec<IndexEntry> = serde_json::from_slice(&index)
            .map_err(|error| corrupt(format!("the index: {error}")))?;
        for entry in &mut listed {
            require(data_start.saturating_add(entry.offset).saturating_add(entry.length))?;
            if entry.length > MAX_CODE_BYTES {
                let IndexEntry { name, length, .. } = entry;
                return Err(corrupt(format!("the entry `{name}` of {length} bytes")));
            }
            entry.parse().ok_or_else(|| corrupt(format!("the entry `{}`", entry.name)))?;
        }
        let path = path.to_owned();
        Ok(Self { inner: Arc::new(Inner { path, contents, data_start, listed }) })
    }
}

pub(crate) fn io(path: &Path, source: std::io::Error) -> BundleError {
    BundleError::Io { path: path.to_owned(), source }
}
