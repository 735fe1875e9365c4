//! Errors of files and directories that this crate writes.

use std::path::PathBuf;

/// Why a file cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// A file cannot be read.
    #[error("`{}` cannot be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file cannot be written. The previous file is unchanged.
    #[error("`{}` cannot be written: {source}; the previous files are unchanged", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The output directory holds other files.
    #[error(
        "`{}` holds `{entry}`, which is not replaced; give another directory",
        path.display()
    )]
    Occupied {
        /// The directory.
        path: PathBuf,
        /// The first entry that would be lost.
        entry: String,
    },
}
