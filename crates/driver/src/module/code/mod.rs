//! Checks on compiled images before they reach the driver.
//!
//! The driver does not get the length of an image, so it would read past the end of a truncated
//! one.

mod bytes;
mod elf;
mod error;
mod fatbin;

use self::bytes::Bytes;
use crate::context::Context;

pub use error::CodeError;

/// Checks that `code` is complete and of the kind that the driver of `context` executes: machine
/// code, or zero-terminated text for a simulated driver.
pub(super) fn check_code(context: &Context, code: &[u8]) -> Result<(), CodeError> {
    let bytes = Bytes(code);
    let simulated = context.driver().is_simulated();
    match (code.starts_with(elf::MAGIC), code.starts_with(&fatbin::MAGIC)) {
        (true, _) | (_, true) if simulated => Err(CodeError::Simulated),
        (true, _) => elf::check(bytes),
        (_, true) => fatbin::check(bytes),
        _ if simulated && code.last() == Some(&0) => Ok(()),
        _ => Err(CodeError::NoCode),
    }
}
