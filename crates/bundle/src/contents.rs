//! The bytes of a bundle, in a file or in the program.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result, Seek, SeekFrom};

use parking_lot::Mutex;

/// The bytes of a bundle.
#[derive(Debug)]
pub(crate) enum Contents {
    File(Mutex<File>),
    Static(&'static [u8]),
}

impl Contents {
    /// Number of bytes.
    pub(crate) fn len(&self) -> Result<u64> {
        match self {
            Self::File(file) => Ok(file.lock().metadata()?.len()),
            Self::Static(bytes) => Ok(bytes.len() as u64),
        }
    }

    /// Fills `space` with the bytes from `offset` on.
    pub(crate) fn read(&self, offset: u64, space: &mut [u8]) -> Result<()> {
        match self {
            Self::File(file) => {
                let mut file = file.lock();
                file.seek(SeekFrom::Start(offset))?;
                file.read_exact(space)
            }
            Self::Static(bytes) => {
                let from = usize::try_from(offset).ok().and_then(|offset| bytes.get(offset..));
                let found = from.and_then(|bytes| bytes.get(..space.len()));
                space.copy_from_slice(found.ok_or(Error::from(ErrorKind::UnexpectedEof))?);
                Ok(())
            }
        }
    }
}
