//! The cache of compiled images on disk, shared by the processes of one user.
//!
//! There is one file per image, device and driver, written atomically, so processes can share the
//! directory. Loaded code is executed, so the directory must belong to the user or to the system
//! and must not be writable by others. Any problem is a warning, and the image is compiled. The
//! cache has no size limit: a set of images takes about a megabyte per driver version. It may be
//! deleted at any time.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use retrograph_bundle::{Bundle, BundleEntry, BundleError, Digest, open_regular};
use retrograph_driver::Context;
use sha2::{Digest as _, Sha256};

/// A directory of compiled images, created on demand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheDir {
    path: PathBuf,
}

/// A problem with the cache on disk. Prewarming continues without it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiskError {
    /// The user has no cache directory.
    #[error("the user has no cache directory: {reason}; name one")]
    NoUserDirectory {
        /// Why not.
        reason: String,
    },
    /// Other users can write to the directory or file.
    #[error(
        "{} may be changed by others ({reason}), but the code in it would be executed; make it \
         accessible only to you (chmod 700), or name another directory", path.display()
    )]
    NotPrivate {
        /// The directory or file.
        path: PathBuf,
        /// The defect.
        reason: &'static str,
    },
    /// The directory or a file in it cannot be read or written.
    #[error("{} cannot be accessed: {source}", path.display())]
    Io {
        /// The directory or file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file is damaged; it is written again.
    #[error(transparent)]
    File(#[from] BundleError),
    /// A file holds another image than its name indicates.
    #[error("{} holds another image than its name indicates", path.display())]
    OtherContent {
        /// The file.
        path: PathBuf,
    },
}

/// The key of the code of an image.
pub(super) struct CodeKey<'a> {
    pub(super) context: &'a Context,
    pub(super) image: Digest,
    pub(super) name: &'a str,
}

impl CodeKey<'_> {
    /// The driver and device of the code. Code for other drivers or devices is not used.
    fn producer(&self) -> String {
        identity(self.context)
    }

    fn file_name(&self) -> String {
        let mut hash = Sha256::new_with_prefix(self.image);
        hash.update(self.producer());
        let hex =
            hash.finalize()[..16].iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        format!("{hex}.code")
    }
}

/// The driver and device of `context`, as far as compiled code depends on them.
pub(super) fn identity(context: &Context) -> String {
    let simulated = if context.driver().is_simulated() { "SIMULATED " } else { "" };
    let (version, device) = (context.driver().version(), context.device_target());
    format!("{simulated}driver for CUDA {version}, default options, for {device}, format 2")
}

impl CacheDir {
    /// `retrograph` in the user's cache directory, such as `~/.cache/retrograph`.
    ///
    /// # Errors
    /// [`DiskError::NoUserDirectory`].
    pub fn user() -> Result<Self, DiskError> {
        use etcetera::BaseStrategy;
        match etcetera::choose_base_strategy() {
            Ok(strategy) => Ok(Self::at(strategy.cache_dir().join("retrograph"))),
            Err(error) => Err(DiskError::NoUserDirectory { reason: error.to_string() }),
        }
    }

    /// The directory at `path`.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The code of an image, if cached, read into `space`.
    pub(super) fn get<'s>(
        &self,
        key: &CodeKey<'_>,
        space: &'s mut Vec<u8>,
    ) -> Result<Option<&'s [u8]>, DiskError> {
        let path = self.path.join(key.file_name());
        let file = match open_regular(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(DiskError::Io { path, source }),
        };
        self.require_private()?;
        let metadata = file.metadata().map_err(|source| io_error(&path, source))?;
        require_private(&path, &metadata)?;
        let bundle = Bundle::from_file(&path, file)?;
        match bundle.find(&key.image, key.context.device_target()) {
            Some(listed) if listed.producer() == key.producer() => {
                bundle.read_code(listed, space).map(Some).map_err(Into::into)
            }
            _ => Err(DiskError::OtherContent { path }),
        }
    }

    /// Stores the code of an image.
    pub(super) fn put(&self, key: &CodeKey<'_>, code: &[u8]) -> Result<(), DiskError> {
        self.create().map_err(|source| io_error(&self.path, source))?;
        self.require_private()?;
        let entry = BundleEntry {
            name: key.name.to_owned(),
            image: key.image,
            target: key.context.device_target(),
            producer: key.producer(),
            code: code.to_owned(),
        };
        Ok(Bundle::write_private(self.path.join(key.file_name()), &[entry])?)
    }

    fn create(&self) -> io::Result<()> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&self.path)
    }

    fn require_private(&self) -> Result<(), DiskError> {
        // The owner of a link could redirect it.
        let metadata = fs::symlink_metadata(&self.path);
        let metadata = metadata.map_err(|source| io_error(&self.path, source))?;
        if !metadata.is_dir() {
            return Err(DiskError::NotPrivate { path: self.path.clone(), reason: "no directory" });
        }
        require_private(&self.path, &metadata)
    }
}

#[cfg(unix)]
fn require_private(path: &Path, metadata: &fs::Metadata) -> Result<(), DiskError> {
    use std::os::unix::fs::MetadataExt;
    let of_system_or_user = [0, rustix::process::geteuid().as_raw()].contains(&metadata.uid());
    let reason = match (of_system_or_user, metadata.mode() & 0o022) {
        (true, 0) => return Ok(()),
        (true, _) => "its mode lets others write",
        (false, _) => "it belongs to another user",
    };
    Err(DiskError::NotPrivate { path: path.to_owned(), reason })
}

/// On other systems, a user's directory is private by its location.
#[cfg(not(unix))]
fn require_private(_path: &Path, _metadata: &fs::Metadata) -> Result<(), DiskError> {
    Ok(())
}

fn io_error(path: &Path, source: io::Error) -> DiskError {
    DiskError::Io { path: path.to_owned(), source }
}
