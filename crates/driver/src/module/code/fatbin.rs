//! Fatbins: cubins and PTX for several SM targets, of which the driver picks one. `nvcc -fatbin`
//! and `fatbinary` write them.
//!
//! The header is a magic number, a version, and the sizes of the header and of the images after it.
//! NVIDIA does not document the format of the images.

use super::bytes::Bytes;
use super::error::CodeError;

/// The first bytes: 0xba55ed50.
pub(super) const MAGIC: [u8; 4] = 0xba55_ed50_u32.to_le_bytes();

const VERSION: u64 = 1;
/// The size of the header of version 1, in bytes.
const HEADER: u64 = 16;

/// Checks that a fatbin has its header and the bytes of its images.
pub(super) fn check(code: Bytes<'_>) -> Result<(), CodeError> {
    let (version, header) = (code.number(4, 2)?, code.number(6, 2)?);
    if version != VERSION {
        return Err(CodeError::FatbinVersion { found: version as u16 });
    }
    if header < HEADER {
        return Err(CodeError::NoCode);
    }
    code.require(header, code.number(8, 8)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fatbin with 24 bytes of images.
    const FATBIN: &[u8] = b"\x50\xed\x55\xba\x01\0\x10\0\x18\0\0\0\0\0\0\0images of the GPU code..";

    fn checked(code: &[u8]) -> Result<(), CodeError> {
        check(Bytes(code))
    }

    #[test]
    fn a_fatbin_that_was_cut_off_is_found_at_every_length() {
        assert_eq!(checked(FATBIN), Ok(()));
        for length in 4..FATBIN.len() {
            let error = checked(&FATBIN[..length]).unwrap_err();
            assert!(matches!(error, CodeError::Truncated { found, .. } if found == length));
        }
    }

    #[test]
    fn wrong_numbers_are_errors_and_no_overflow() {
        let with = |at: usize, value: &[u8]| {
            let mut code = FATBIN.to_vec();
            code[at..at + value.len()].copy_from_slice(value);
            checked(&code)
        };
        assert_eq!(with(4, &[2, 1]), Err(CodeError::FatbinVersion { found: 0x102 }));
        assert_eq!(with(6, &[15, 0]), Err(CodeError::NoCode));
        let (found, longer) = (FATBIN.len(), FATBIN.len() as u64 + 1);
        let truncated = |needed| Err(CodeError::Truncated { found, needed });
        assert_eq!(with(6, &[17, 0]), truncated(longer), "the images follow the header");
        assert_eq!(with(8, &(longer - HEADER).to_le_bytes()), truncated(longer));
        assert_eq!(with(8, &[0xff; 8]), truncated(u64::MAX));
    }
}
