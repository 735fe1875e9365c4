//! Atomic creation and replacement of files and directories.

mod directory;
mod error;
mod temporary;

pub use directory::staging_directory;
pub(crate) use directory::{NewDirectory, require_free};
pub use error::FileError;
pub(crate) use temporary::{builder, file_in};
pub use temporary::{folder_of, replace_file, require_writable, resolve_links};
