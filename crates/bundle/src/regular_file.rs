//! Opening files that must be regular ones.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

/// Opens a regular file for reading. A pipe without a writer would block the caller forever, and
/// reads of a device may never end.
///
/// # Errors
/// If the file cannot be opened; [`io::ErrorKind::InvalidInput`] if `path` is a pipe, a directory,
/// a device or a socket.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        // Opening a pipe then returns at once. Reads of a regular file are unaffected.
        options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
    }
    let file = options.open(path)?;
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"))
}
