//! Checks on compiled images before they reach the driver.
//!
//! The driver does not get the length of an image, so it would read past the end of a truncated
//! one.

use crate::context::Context;

/// The first bytes of machine code.
const ELF: &[u8] = b"\x7fELF";
/// The ELF class for 64-bit addresses, and the ELF machine number of CUDA devices.
const ELF_CLASS_64: u8 = 2;
const MACHINE_CUDA: u16 = 190;

/// Compiled code that was not passed to the driver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodeError {
    /// A simulated driver cannot execute machine code.
    #[error("it is machine code, but a simulated driver only executes PTX")]
    Simulated,
    /// The code is neither machine code nor, for a simulated driver, text.
    #[error("it is not machine code for CUDA devices")]
    NoCode,
    /// The code is shorter than its header requires.
    #[error("it has {found} bytes, but its header requires {needed}")]
    Truncated {
        /// Its length in bytes.
        found: usize,
        /// The length according to its header.
        needed: u64,
    },
}

/// Checks that `code` is complete and of the kind that the driver of `context` executes: machine
/// code, or zero-terminated text for a simulated driver.
pub(super) fn check_code(context: &Context, code: &[u8]) -> Result<(), CodeError> {
    let is_machine_code = code.starts_with(ELF);
    match (is_machine_code, context.driver().is_simulated()) {
        (true, true) => Err(CodeError::Simulated),
        (true, false) => check_elf(code),
        (false, true) if code.last() == Some(&0) => Ok(()),
        (false, _) => Err(CodeError::NoCode),
    }
}

/// Checks that an ELF file is as long as its section and program headers require.
fn check_elf(code: &[u8]) -> Result<(), CodeError> {
    let number = |at: usize, size: usize| -> Result<u64, CodeError> {
        let needed = (at + size) as u64;
        let bytes = code.get(at..at + size);
        let bytes = bytes.ok_or(CodeError::Truncated { found: code.len(), needed })?;
        Ok(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    };
    if number(4, 1)? != u64::from(ELF_CLASS_64) || number(18, 2)? != u64::from(MACHINE_CUDA) {
        return Err(CodeError::NoCode);
    }
    // Offset, entry size and count of the section headers and of the program headers.
    for [offset, size, count] in [[40, 58, 60], [32, 54, 56]] {
        let (offset, size, count) = (number(offset, 8)?, number(size, 2)?, number(count, 2)?);
        let needed = offset.saturating_add(size * count);
        if needed > code.len() as u64 {
            return Err(CodeError::Truncated { found: code.len(), needed });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The header of a file with two sections at the end of 64 + 128 bytes.
    fn elf() -> Vec<u8> {
        let mut code = vec![0_u8; 64 + 128];
        code[..4].copy_from_slice(ELF);
        code[4] = ELF_CLASS_64;
        code[18..20].copy_from_slice(&MACHINE_CUDA.to_le_bytes());
        code[40] = 64;
        (code[58], code[60]) = (64, 2);
        code
    }

    #[test]
    fn machine_code_that_was_cut_off_is_found_at_every_length() {
        let code = elf();
        assert_eq!(check_elf(&code), Ok(()));
        for length in 4..code.len() {
            let error = check_elf(&code[..length]).unwrap_err();
            assert!(matches!(error, CodeError::Truncated { found, .. } if found == length));
        }
    }

    #[test]
    fn code_for_another_machine_is_no_code() {
        let mut code = elf();
        code[18] = 62;
        assert_eq!(check_elf(&code), Err(CodeError::NoCode));
    }
}
