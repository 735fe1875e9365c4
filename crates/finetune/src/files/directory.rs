//! Atomic creation and replacement of directories.
//!
//! A directory is filled under a temporary name in the same folder, synchronized, and then renamed.
//! If it replaces a directory, the two names are exchanged atomically. A link is followed.
//!
//! Some directories cannot be replaced: a mount point and a directory in a read-only folder cannot
//! be renamed, and a shell in the current directory would stay in the old one. Files for such a
//! directory are written to a temporary directory inside it and then renamed one by one.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::error::FileError;
use super::temporary::{directory_in, folder_of, is_temporary, require_writable, resolve_links};

/// A directory under construction.
#[derive(Debug)]
pub(crate) struct NewDirectory {
    temporary: TempDir,
    path: PathBuf,
    /// Files that the directory may replace.
    replaceable: Vec<String>,
    /// Whether the files are renamed into the directory at `path` one by one.
    in_place: bool,
    /// Keeps other processes from removing the temporary directory.
    lock: Option<File>,
}

impl NewDirectory {
    /// Starts a directory that will be renamed to `path`, which may hold only files named
    /// `replaceable`.
    pub(crate) fn create(path: &Path, replaceable: &[&str]) -> Result<Self, FileError> {
        require_free(path, replaceable)?;
        let failed = |source| FileError::Write { path: path.to_owned(), source };
        let path = resolve_links(path).map_err(failed)?;
        let in_place = is_filled_in_place(&path);
        let place = if in_place { &path } else { folder_of(&path) };
        std::fs::create_dir_all(place).map_err(failed)?;
        let (temporary, lock) = directory_in(place).map_err(failed)?;
        let replaceable = replaceable.iter().map(|&name| name.to_owned()).collect();
        Ok(Self { temporary, path, replaceable, in_place, lock })
    }

    /// The directory to fill. The caller synchronizes each file.
    pub(crate) fn path(&self) -> &Path {
        self.temporary.path()
    }

    /// Renames the directory to its path.
    ///
    /// # Errors
    /// [`FileError::Occupied`] if the path now holds a file that is not replaceable, which then
    /// stays; [`FileError::Write`] if renaming fails.
    pub(crate) fn publish(self) -> Result<(), FileError> {
        let Self { temporary, path, replaceable, in_place, lock } = self;
        let replaceable: Vec<&str> = replaceable.iter().map(String::as_str).collect();
        let failed = |source| FileError::Write { path: path.clone(), source };
        File::open(temporary.path()).and_then(|new| new.sync_all()).map_err(failed)?;
        if in_place {
            require_free(&path, &replaceable)?;
            fill(temporary.path(), &path).map_err(failed)?;
        } else {
            replace(temporary.path(), &path, &replaceable)?;
            File::open(folder_of(&path)).and_then(|folder| folder.sync_all()).map_err(failed)?;
        }
        drop(lock);
        Ok(())
    }
}

/// Renames the files in `new` into the directory `path`.
fn fill(new: &Path, path: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(new)? {
        let entry = entry?;
        std::fs::rename(entry.path(), path.join(entry.file_name()))?;
    }
    File::open(path)?.sync_all()
}

/// Renames the directory `new` to `path`. If there is a directory with files, it gets the name
/// `new`, unless it has a file that is not replaceable.
fn replace(new: &Path, path: &Path, replaceable: &[&str]) -> Result<(), FileError> {
    let failed = |source| FileError::Write { path: path.to_owned(), source };
    use io::ErrorKind::{AlreadyExists, DirectoryNotEmpty};
    match std::fs::rename(new, path) {
        Err(error) if matches!(error.kind(), AlreadyExists | DirectoryNotEmpty) => {}
        renamed => return renamed.map_err(failed),
    }
    require_free(path, replaceable)?;
    exchange(new, path).map_err(failed)?;
    // Another program may have written a file between the check and the exchange.
    require_free(new, replaceable).map_err(|error| match (exchange(new, path), error) {
        (Ok(()), FileError::Occupied { entry, .. }) => {
            FileError::Occupied { path: path.to_owned(), entry }
        }
        (Err(source), _) => failed(source),
        (_, error) => error,
    })
}

/// The directory in which a temporary one is created for a directory at `path`, or the nearest one
/// above it that exists.
///
/// # Errors
/// If `path` is a link that cannot be followed.
pub fn staging_directory(path: &Path) -> io::Result<PathBuf> {
    let path = resolve_links(path)?;
    if is_filled_in_place(&path) {
        return Ok(path);
    }
    let mut place = folder_of(&path);
    while !place.exists() {
        let above = folder_of(place);
        if above == place {
            break;
        }
        place = above;
    }
    Ok(place.to_owned())
}

/// Whether there is a directory at `path` that can be filled but not replaced.
fn is_filled_in_place(path: &Path) -> bool {
    let Ok(path) = path.canonicalize() else { return false };
    let is_current = std::env::current_dir().is_ok_and(|current| current == path);
    is_current || is_mount_point(&path) || require_writable(folder_of(&path)).is_err()
}

#[cfg(target_os = "linux")]
fn is_mount_point(path: &Path) -> bool {
    use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
    let found = statx(CWD, path, AtFlags::empty(), StatxFlags::BASIC_STATS);
    found.is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

#[cfg(not(target_os = "linux"))]
fn is_mount_point(_path: &Path) -> bool {
    false
}

/// Checks that `path` holds only files named `replaceable`, and no directory of such a name.
pub(crate) fn require_free(path: &Path, replaceable: &[&str]) -> Result<(), FileError> {
    let failed = |source| FileError::Read { path: path.to_owned(), source };
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(failed(source)),
    };
    for entry in entries {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if is_temporary(&name) {
            continue;
        }
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_directory || !replaceable.contains(&name.as_str()) {
            return Err(FileError::Occupied { path: path.to_owned(), entry: name });
        }
    }
    Ok(())
}

/// Exchanges the names of two directories.
fn exchange(new: &Path, old: &Path) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        match renameat_with(CWD, new, CWD, old, RenameFlags::EXCHANGE) {
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {}
            done => return Ok(done?),
        }
    }
    in_two_steps(new, old)
}

/// Exchanges the names of two directories on file systems that cannot do it atomically.
fn in_two_steps(new: &Path, old: &Path) -> io::Result<()> {
    let mut aside = new.as_os_str().to_owned();
    aside.push("-old");
    std::fs::rename(old, &aside)?;
    if let Err(error) = std::fs::rename(new, old) {
        std::fs::rename(&aside, old)?;
        return Err(error);
    }
    std::fs::rename(&aside, new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(folder: &Path) -> Vec<String> {
        let name = |entry: io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
        let mut names: Vec<_> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| name(entry).to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    fn put(path: &Path, text: &str) -> Result<(), FileError> {
        let new = NewDirectory::create(path, &["a"])?;
        std::fs::write(new.path().join("a"), text).unwrap();
        new.publish()
    }

    #[test]
    fn a_directory_is_replaced_atomically_without_leftovers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/result");
        for text in ["first", "second"] {
            put(&path, text).unwrap();
            assert_eq!(std::fs::read_to_string(path.join("a")).unwrap(), text);
            assert_eq!(files(&folder.path().join("deep")), ["result"]);
        }
        let (new, old) = (folder.path().join("new"), folder.path().join("old"));
        [&new, &old].into_iter().for_each(|path| std::fs::create_dir(path).unwrap());
        std::fs::write(new.join("n"), "").unwrap();
        in_two_steps(&new, &old).unwrap();
        assert_eq!((files(&old), files(&new)), (vec!["n".to_owned()], vec![]));
    }

    #[test]
    fn an_unfinished_directory_never_replaces_a_finished_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("result");
        put(&path, "whole").unwrap();
        let half = NewDirectory::create(&path, &["a"]).unwrap();
        std::fs::write(half.path().join("a"), "ha").unwrap();
        // A process that is killed leaves its temporary directory, without the lock.
        let NewDirectory { temporary, lock, .. } = half;
        drop(lock);
        let left = temporary.keep();
        assert_eq!(std::fs::read_to_string(path.join("a")).unwrap(), "whole");
        put(&path, "newer").unwrap();
        assert_eq!(std::fs::read_to_string(path.join("a")).unwrap(), "newer");
        assert!(!left.exists());
    }

    #[test]
    #[cfg(unix)]
    fn links_are_followed() {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir(path("empty")).unwrap();
        symlink("empty", path("to empty")).unwrap();
        symlink("new", path("to nothing")).unwrap();
        symlink(path("to nothing"), path("twice")).unwrap();
        symlink("itself", path("itself")).unwrap();
        for (link, target) in [("to empty", "empty"), ("twice", "new"), ("to nothing", "new")] {
            put(&path(link), link).unwrap();
            assert!(path(link).is_symlink());
            assert_eq!(std::fs::read_to_string(path(target).join("a")).unwrap(), link);
        }
        assert!(put(&path("itself"), "x").is_err());
        assert_eq!(staging_directory(&path("twice")).unwrap(), folder.path());
        assert_eq!(staging_directory(&path("deep/er")).unwrap(), folder.path());
    }

    #[test]
    fn a_directory_that_cannot_be_replaced_is_filled() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("result");
        std::fs::create_dir(&path).unwrap();
        for text in ["first", "second"] {
            let (temporary, lock) = directory_in(&path).unwrap();
            let (path, replaceable) = (path.clone(), vec!["a".to_owned()]);
            let new = NewDirectory { temporary, path, replaceable, in_place: true, lock };
            require_free(&new.path, &["a"]).unwrap();
            std::fs::write(new.path().join("a"), text).unwrap();
            let path = new.path.clone();
            new.publish().unwrap();
            assert_eq!(std::fs::read_to_string(path.join("a")).unwrap(), text);
            assert_eq!(files(&path), ["a"]);
        }
        let current = std::env::current_dir().unwrap();
        assert_eq!(staging_directory(Path::new(".")).unwrap(), current);
        assert_eq!(staging_directory(&current).unwrap(), current);
        #[cfg(target_os = "linux")]
        assert!(is_mount_point(Path::new("/proc")) && !is_mount_point(&path));
    }

    #[test]
    fn a_file_that_appears_meanwhile_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("result");
        for replaceable in [&["a"][..], &[]] {
            for in_place in [false, true] {
                std::fs::create_dir(&path).unwrap();
                let mut new = NewDirectory::create(&path, replaceable).unwrap();
                if in_place {
                    (new.temporary, new.lock) = directory_in(&path).unwrap();
                    new.in_place = true;
                }
                std::fs::write(new.path().join("a"), "new").unwrap();
                std::fs::write(path.join("thesis"), "years of work").unwrap();
                let error = new.publish().unwrap_err().to_string();
                assert!(error.contains("result` holds `thesis`"), "{error}");
                assert_eq!(files(&path), ["thesis"]);
                assert_eq!(files(folder.path()), ["result"]);
                std::fs::remove_dir_all(&path).unwrap();
            }
        }
    }

    #[test]
    fn files_of_another_kind_are_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("thesis"), "years of work").unwrap();
        let error = put(folder.path(), "x").unwrap_err().to_string();
        assert!(error.contains("thesis"), "{error}");
        let file = folder.path().join("thesis");
        assert!(matches!(put(&file, "x"), Err(FileError::Read { .. })));
        let inside = folder.path().join("result/a");
        std::fs::create_dir_all(&inside).unwrap();
        std::fs::write(inside.join("thesis"), "years of work").unwrap();
        let error = put(&folder.path().join("result"), "x").unwrap_err().to_string();
        assert!(error.contains("holds `a`") && inside.join("thesis").exists(), "{error}");
    }
}
