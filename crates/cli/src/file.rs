//! Atomic writing of results.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use retrograph_finetune::files::{replace_file, resolve_links};
use serde::Serialize;

use crate::error::CliError;
#[cfg(target_os = "linux")]
use crate::interrupt;

/// Interval between checks for a reader of a pipe.
#[cfg(target_os = "linux")]
const LOOK: std::time::Duration = std::time::Duration::from_millis(50);

/// Writes `text` to `path` atomically: readers see the old text or the new one, and a failure
/// leaves the old one. Links are followed. Devices, pipes and the files of standard output and
/// standard error are written directly.
pub(crate) fn write(what: &'static str, path: &Path, text: &str) -> Result<(), CliError> {
    put(path, text.as_bytes()).map_err(|error| CliError::write(what, path, error))
}

fn put(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let Ok(found) = std::fs::metadata(path) else {
        return replace_file(&resolve_links(path)?, bytes);
    };
    if let Some(mut stream) = standard_stream(&found) {
        return stream.write_all(bytes);
    }
    match path.canonicalize() {
        Ok(target) if found.is_file() => replace_file(&target, bytes),
        // A pipe of `/proc/self/fd` has no path of its own.
        _ => opened(path)?.write_all(bytes),
    }
}

/// Opens a device or a pipe. A pipe without a reader blocks until there is one, or until a signal
/// that asks the run to stop.
#[cfg(target_os = "linux")]
fn opened(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;

    use rustix::fs::OFlags;
    use rustix::io::Errno;
    let mut options = OpenOptions::new();
    options.write(true).custom_flags(OFlags::NONBLOCK.bits() as i32);
    loop {
        match options.open(path) {
            // This one does not block: the pipe has a reader.
            Ok(_reached) => return OpenOptions::new().write(true).open(path),
            Err(error) if error.raw_os_error() != Some(Errno::NXIO.raw_os_error()) => {
                return Err(error);
            }
            Err(_) if interrupt::is_asked() => {
                return Err(io::Error::other("no program reads this pipe"));
            }
            Err(_) => std::thread::sleep(LOOK),
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn opened(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).open(path)
}

/// Returns standard output or standard error, if `found` is its file.
#[cfg(unix)]
pub(crate) fn standard_stream(found: &Metadata) -> Option<File> {
    use std::os::fd::AsFd;
    use std::os::unix::fs::MetadataExt;
    let streams =
        [io::stdout().as_fd().try_clone_to_owned(), io::stderr().as_fd().try_clone_to_owned()];
    let number = |found: &Metadata| (found.dev(), found.ino());
    let is_same = |file: &File| file.metadata().is_ok_and(|own| number(&own) == number(found));
    streams.into_iter().flatten().map(File::from).find(is_same)
}

#[cfg(not(unix))]
pub(crate) fn standard_stream(_: &Metadata) -> Option<File> {
    None
}

/// Writes `value` as JSON with [`write()`].
pub(crate) fn write_json(
    what: &'static str,
    path: &Path,
    value: &impl Serialize,
) -> Result<(), CliError> {
    let text = serde_json::to_string_pretty(value);
    let text = text.map_err(|error| CliError::write(what, path, error))?;
    write(what, path, &(text + "\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_atomically_without_leftovers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("result");
        for text in ["a long text", "short"] {
            write("the result", &path, text).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_failed_write_names_file_and_reason() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("absent/result");
        let error = write("the result", &path, "text").unwrap_err().to_string();
        assert!(error.starts_with("the result cannot be written to `"), "{error}");
        assert!(error.contains("absent/result"), "{error}");
    }
}
