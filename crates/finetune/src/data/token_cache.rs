//! A cache of tokenized data: each file is built once and memory-mapped by every run that uses it.
//!
//! The name of a file is SHA-256 of the data, the tokenizer with its chat template, and the version
//! of this crate. Changed data gets another file; a damaged file is built again.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::DataError;
use super::corpus::{self, Corpus, CorpusWriter, FileKey};
use crate::digest::{FileDigest, digest_of_file, hex};
use crate::error::Result;
use crate::tokenizer::Tokenizer;

/// The file extension.
const EXTENSION: &str = "tokens";
/// Increased when the same data and tokenizer would give other tokens.
const MEANING: u32 = 1;

/// A directory of tokenized data, created on demand. Its files may be deleted while no run uses
/// them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenCache {
    directory: PathBuf,
}

/// The cache file of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheUse {
    /// The file.
    pub path: PathBuf,
    /// How the run got the file.
    pub state: CacheState,
}

/// How a run got its cache file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CacheState {
    /// An earlier run built it.
    Reused,
    /// This run built it.
    Built,
    /// This run replaced a file that could not be used, for this reason.
    Rebuilt(String),
}

/// The kind of tokenized data; part of the key.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    Text,
    Examples,
    Pairs,
}

/// Writes the tokens of a file. Returns SHA-256 of the file.
pub(super) type Build<'a> = &'a mut dyn FnMut(&mut CorpusWriter) -> Result<FileDigest>;

impl TokenCache {
    /// The cache in `directory`.
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into() }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.directory
    }

    /// Returns the tokens of the file `data`. If there is no valid cache file, `build` writes one.
    /// Concurrent processes wait for the first.
    ///
    /// # Errors
    /// [`DataError::Read`], [`DataError::NoSpace`], [`DataError::Cache`],
    /// [`DataError::Changed`], and the errors of `build`.
    pub(super) fn corpus(
        &self,
        data: &Path,
        tokenizer: &Tokenizer,
        form: Form,
        build: Build<'_>,
    ) -> Result<(Corpus, CacheUse)> {
        fs::create_dir_all(&self.directory).map_err(failed(&self.directory))?;
        // The tokens of such a file cannot be cached, and reading it could take hours.
        self.require_space(data, tokenizer, |disk| disk.all)?;
        let source = digest_of_file(data).map_err(DataError::read(data))?;
        let key = key(form, &source, &tokenizer.digest());
        let name = hex(&key[..16]);
        let path = self.directory.join(format!("{name}.{EXTENSION}"));
        let using = |state| CacheUse { path: path.clone(), state };
        if let Ok(Some(corpus)) = corpus::open(&path, &key) {
            return Ok((corpus, using(CacheState::Reused)));
        }
        self.require_space(data, tokenizer, |disk| disk.free)?;
        let lock = self.directory.join(format!("{name}.lock"));
        let held = File::create(&lock).and_then(|file| file.lock().map(|()| file));
        // Without file locks, several processes build the file; the last result stays.
        let held = held.ok();
        let mut build = || self.built(data, &source, &path, &key, build);
        let built = match corpus::open(&path, &key) {
            Ok(Some(corpus)) => Ok((corpus, using(CacheState::Reused))),
            Ok(None) => build().map(|corpus| (corpus, using(CacheState::Built))),
            Err(reason) => {
                build().map(|corpus| (corpus, using(CacheState::Rebuilt(reason.to_string()))))
            }
        };
        // Processes that wait for the lock find the finished file.
        let _ = fs::remove_file(&lock);
        drop(held);
        built
    }

    /// Fails if the tokens of the data exceed the `capacity` of the file system, if it is known.
    fn require_space(
        &self,
        data: &Path,
        tokenizer: &Tokenizer,
        capacity: fn(&DiskSpace) -> u64,
    ) -> Result<()> {
        let directory = &self.directory;
        let Some(found) = DiskSpace::of(directory).map_err(failed(directory))? else {
            return Ok(());
        };
        let bytes = fs::metadata(data).map_err(DataError::read(data))?.len();
        let needed = if tokenizer.is_bytes() { bytes.saturating_mul(4) } else { bytes };
        let capacity = capacity(&found);
        if needed <= capacity {
            return Ok(());
        }
        let (path, directory) = (data.to_owned(), directory.clone());
        Err(DataError::NoSpace { path, directory, needed, capacity }.into())
    }

    fn built(
        &self,
        data: &Path,
        source: &[u8; 32],
        path: &Path,
        key: &FileKey,
        build: Build<'_>,
    ) -> Result<Corpus> {
        let failed = || failed(path);
        let mut writer = CorpusWriter::in_folder(&self.directory).map_err(failed())?;
        let read = build(&mut writer)?;
        if read.get().map_err(DataError::read(data))? != *source {
            return Err(DataError::Changed { path: data.to_owned() }.into());
        }
        writer.persist(path, key).map_err(failed())?;
        let corpus = corpus::open(path, key).map_err(failed())?;
        let missing = || failed()(io::ErrorKind::NotFound.into());
        corpus.ok_or_else(|| missing().into())
    }
}

/// The bytes of a file system.
struct DiskSpace {
    all: u64,
    free: u64,
}

impl DiskSpace {
    /// Returns the space of the file system of `directory`; `None` if unknown.
    #[cfg(target_os = "linux")]
    fn of(directory: &Path) -> io::Result<Option<Self>> {
        let found = rustix::fs::statvfs(directory)?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        let (all, free) = (bytes(found.f_blocks), bytes(found.f_bavail));
        Ok((all > 0).then_some(Self { all, free }))
    }

    #[cfg(not(target_os = "linux"))]
    fn of(_: &Path) -> io::Result<Option<Self>> {
        Ok(None)
    }
}

/// Returns the error of writing to `path`.
pub(super) fn failed(path: &Path) -> impl FnOnce(io::Error) -> DataError {
    let path = path.to_owned();
    move |source| DataError::Cache { path, source }
}

fn key(form: Form, source: &[u8; 32], tokenizer: &[u8; 32]) -> FileKey {
    let version = env!("CARGO_PKG_VERSION");
    let mut hash = Sha256::new_with_prefix(format!("{version} {MEANING} {form:?} "));
    hash.update(source);
    hash.update(tokenizer);
    hash.finalize().into()
}
