//! Writes bundles: to a temporary file, which then replaces the file at the path.

use std::io::Write;
use std::path::Path;

use sha2::{Digest as _, Sha256};
use tempfile::NamedTempFile;

use crate::bundle::{Bundle, BundleError, FORMAT, MAGIC, MAX_CODE_BYTES, MAX_INDEX_BYTES, io};
use crate::index::{BundleEntry, write};

impl Bundle {
    /// Writes a bundle atomically: readers see the old file or the new one. It has the permissions
    /// of any new file.
    ///
    /// # Errors
    /// [`BundleError::Io`] or [`BundleError::TooLarge`].
    pub fn write(path: impl AsRef<Path>, entries: &[BundleEntry]) -> Result<(), BundleError> {
        let path = path.as_ref();
        persist(Self::write_temporary(&public(), path, entries)?, path)
    }

    /// As [`Bundle::write`], but only the owner can read and write the file.
    ///
    /// # Errors
    /// As [`Bundle::write`].
    pub fn write_private(
        path: impl AsRef<Path>,
        entries: &[BundleEntry],
    ) -> Result<(), BundleError> {
        let path = path.as_ref();
        persist(Self::write_temporary(&tempfile::Builder::new(), path, entries)?, path)
    }

    /// Writes a bundle as [`Bundle::write`], but reads it back and compares all code before it
    /// replaces the file at `path`.
    ///
    /// # Errors
    /// [`BundleError`]; the file at `path` is then unchanged.
    pub fn write_verified(
        path: impl AsRef<Path>,
        entries: &[BundleEntry],
    ) -> Result<Self, BundleError> {
        let path = path.as_ref();
        let temporary = Self::write_temporary(&public(), path, entries)?;
        let file = temporary.as_file().try_clone().map_err(|source| io(path, source))?;
        let bundle = Self::from_file(path, file)?;
        let mut space = Vec::new();
        for (listed, entry) in bundle.index().iter().zip(entries) {
            if bundle.read_code(listed, &mut space)? != entry.code {
                let what = format!("other code of `{}` for {}", entry.name, entry.target);
                return Err(BundleError::Corrupt { path: path.to_owned(), what });
            }
        }
        persist(temporary, path)?;
        Ok(bundle)
    }

    /// Writes a bundle to a temporary file in the folder of `path`.
    fn write_temporary(
        temporary: &tempfile::Builder<'_, '_>,
        path: &Path,
        entries: &[BundleEntry],
    ) -> Result<NamedTempFile, BundleError> {
        let too_large = |what, bytes, limit| {
            Err(BundleError::TooLarge { path: path.to_owned(), what, bytes, limit })
        };
        for entry in entries {
            let bytes = entry.code.len() as u64;
            if bytes > MAX_CODE_BYTES {
                let what = format!("the code of `{}` for {}", entry.name, entry.target);
                return too_large(what, bytes, MAX_CODE_BYTES);
            }
        }
        let index = write(entries);
        let index_bytes = match u32::try_from(index.len()) {
            Ok(bytes) if bytes <= MAX_INDEX_BYTES => bytes,
            _ => {
                let bytes = index.len() as u64;
                return too_large("the index".to_owned(), bytes, MAX_INDEX_BYTES.into());
            }
        };
        let folder = path.parent().filter(|folder| *folder != Path::new(""));
        let write = || {
            let mut file = temporary.tempfile_in(folder.unwrap_or(Path::new(".")))?;
            file.write_all(MAGIC)?;
            file.write_all(&FORMAT.to_le_bytes())?;
            file.write_all(&index_bytes.to_le_bytes())?;
            file.write_all(&Sha256::digest(&index))?;
            file.write_all(&index)?;
            entries.iter().try_for_each(|entry| file.write_all(&entry.code))?;
            Ok(file)
        };
        write().map_err(|source| io(path, source))
    }
}

/// Temporary files with the permissions of any new file. The umask applies.
fn public() -> tempfile::Builder<'static, 'static> {
    let mut temporary = tempfile::Builder::new();
    // A temporary file is otherwise readable by its owner only.
    #[cfg(unix)]
    temporary.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    temporary
}

/// Replaces the file at `path`.
fn persist(file: NamedTempFile, path: &Path) -> Result<(), BundleError> {
    file.persist(path).map(drop).map_err(|failed| io(path, failed.error))
}
