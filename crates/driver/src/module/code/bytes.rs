//! Reading the headers of an image.

use super::error::CodeError;

/// The bytes of an image.
#[derive(Clone, Copy)]
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

impl Bytes<'_> {
    /// Checks that the image has `size` bytes from `start`.
    pub(super) fn require(self, start: u64, size: u64) -> Result<(), CodeError> {
        let found = self.0.len();
        // A sum that overflows saturates, and no file is so long.
        let needed = start.saturating_add(size);
        if needed > found as u64 { Err(CodeError::Truncated { found, needed }) } else { Ok(()) }
    }

    /// The little-endian number of `size` bytes at `at`.
    pub(super) fn number(self, at: u64, size: u64) -> Result<u64, CodeError> {
        self.require(at, size)?;
        let bytes = &self.0[at as usize..(at + size) as usize];
        Ok(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }
}
