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

/// Checks that `code` is a complete cubin or fatbin or, for a simulated driver, zero-terminated
/// text. A simulated driver executes only PTX, and refuses cubins and fatbins without PTX itself.
pub(super) fn check_code(context: &Context, code: &[u8]) -> Result<(), CodeError> {
    let bytes = Bytes(code);
    if code.starts_with(elf::MAGIC) {
        elf::check(bytes)
    } else if code.starts_with(&fatbin::MAGIC) {
        fatbin::check(bytes)
    } else if context.driver().is_simulated() && code.last() == Some(&0) {
        Ok(())
    } else {
        Err(CodeError::NoCode)
    }
}
