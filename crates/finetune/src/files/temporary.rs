//! Temporary files and directories in the folder of their destination.
//!
//! Each is locked while its process lives; a killed process leaves it unlocked. Creating another
//! one in the same folder removes unlocked ones.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile, TempDir};

/// Prefix of the names of temporary files and directories.
const PREFIX: &str = ".retrograph-";
/// Number of random characters after the prefix.
const RANDOM: usize = 6;

/// Replaces the file at `path` atomically by one with `bytes`. A failure leaves the old file. The
/// permissions of the new file follow the umask.
///
/// # Errors
/// If the folder of `path` is not writable, or the disk is full.
pub fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    use std::io::Write;
    let mut file = file_in(folder_of(path))?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// Returns the folder of `path`.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."))
}

/// Returns the target of links, which need not exist.
///
/// # Errors
/// If there are too many links.
pub fn resolve_links(path: &Path) -> io::Result<PathBuf> {
    /// The limit of Linux.
    const MAX_LINKS: usize = 40;
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        match std::fs::read_link(&path) {
            Ok(target) => path = folder_of(&path).join(target),
            // `.` and `..` have no name that could be replaced.
            Err(_) if path.file_name().is_none() => return path.canonicalize(),
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::other("it is a link to itself"))
}

/// Checks that files can be created in `folder`, by creating one.
///
/// # Errors
/// The reason why none can be created.
pub fn require_writable(folder: &Path) -> io::Result<()> {
    file_in(folder).map(drop)
}

/// Creates a locked temporary file in `folder`.
pub(crate) fn file_in(folder: &Path) -> io::Result<NamedTempFile> {
    remove_left(folder);
    loop {
        let file = builder(0o666).tempfile_in(folder)?;
        // Another process may have removed the file before it was locked.
        if is_locked(file.as_file()) && file.path().exists() {
            return Ok(file);
        }
    }
}

/// Creates a temporary directory and its lock in `folder`.
pub(crate) fn directory_in(folder: &Path) -> io::Result<(TempDir, Option<File>)> {
    remove_left(folder);
    loop {
        let directory = builder(0o777).tempdir_in(folder)?;
        // Some systems do not open directories.
        let Ok(lock) = File::open(directory.path()) else { return Ok((directory, None)) };
        if is_locked(&lock) && directory.path().exists() {
            return Ok((directory, Some(lock)));
        }
    }
}

/// A builder of temporary files or directories with these permissions, as far as the umask allows
/// them.
pub(crate) fn builder(mode: u32) -> Builder<'static, 'static> {
    let mut builder = Builder::new();
    builder.prefix(PREFIX).rand_bytes(RANDOM);
    // The default of `tempfile` is readable only by the user.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(mode));
    #[cfg(not(unix))]
    let _ = mode;
    builder
}

/// Locks `file`. Returns whether that succeeded, or the file system has no locks.
fn is_locked(file: &File) -> bool {
    !matches!(file.try_lock(), Err(std::fs::TryLockError::WouldBlock))
}

/// Whether a file or directory with this name is temporary.
pub(crate) fn is_temporary(name: &str) -> bool {
    name.strip_prefix(PREFIX).is_some_and(|random| {
        random.len() == RANDOM && random.bytes().all(|byte| byte.is_ascii_alphanumeric())
    })
}

/// Removes temporary files of killed processes in `folder`. A file that cannot be locked stays: it
/// is in use, or its file system has no locks.
fn remove_left(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let temporary =
        |entry: &std::fs::DirEntry| entry.file_name().to_str().is_some_and(is_temporary);
    for entry in entries.flatten().filter(temporary) {
        let path = entry.path();
        let Ok(kind) = entry.file_type() else { continue };
        let is_directory = kind.is_dir();
        // Opening a pipe would wait for a writer.
        if !(is_directory || kind.is_file()) {
            continue;
        }
        let Ok(lock) = File::open(&path) else { continue };
        if lock.try_lock().is_err() {
            continue;
        }
        let removed =
            if is_directory { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
        if let Err(error) = removed {
            let path = path.display();
            tracing::warn!(%path, %error, "cannot remove a temporary file of a killed process");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftovers_of_a_killed_process_are_removed_unless_in_use() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path(".retrograph-Ab3dE6"), "left").unwrap();
        std::fs::create_dir(path(".retrograph-000000")).unwrap();
        std::fs::write(path(".retrograph-000000/part"), "left").unwrap();
        for name in [".retrograph-notes", ".retrograph-Ab3dE6-old"] {
            std::fs::write(path(name), "of somebody").unwrap();
        }
        let (used, _lock) = directory_in(folder.path()).unwrap();
        let file = file_in(folder.path()).unwrap();
        replace_file(&path("result"), b"new").unwrap();
        assert!(used.path().exists() && file.path().exists());
        assert!(path(".retrograph-notes").exists() && path(".retrograph-Ab3dE6-old").exists());
        assert!(!path(".retrograph-Ab3dE6").exists() && !path(".retrograph-000000").exists());
        assert_eq!(std::fs::read(path("result")).unwrap(), b"new");
    }
}
