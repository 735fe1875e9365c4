//! Cubins, which are ELF files.

use super::bytes::Bytes;
use super::error::CodeError;

/// The first bytes.
pub(super) const MAGIC: &[u8] = b"\x7fELF";
/// The ELF class for 64-bit addresses, and the ELF machine number of CUDA devices.
const ELF_CLASS_64: u8 = 2;
const MACHINE_CUDA: u16 = 190;

/// Where an ELF file describes one of its two tables, and where an entry of that table describes
/// its bytes in the file.
struct ElfTable {
    /// Position in the file header of the offset of the table.
    offset: u64,
    /// Position in the file header of the size of an entry.
    entry_size: u64,
    /// Position in the file header of the number of entries.
    count: u64,
    /// The least size of an entry.
    least_entry_size: u64,
    /// Position in an entry of its type.
    kind: u64,
    /// The type of entries without bytes in the file.
    nobits: Option<u64>,
    /// Position in an entry of the offset of its bytes.
    data_offset: u64,
    /// Position in an entry of the number of its bytes.
    data_size: u64,
}

/// The type of a section without bytes in the file.
const SHT_NOBITS: u64 = 8;

/// The section headers and the program headers.
const TABLES: [ElfTable; 2] = [
    ElfTable {
        offset: 40,
        entry_size: 58,
        count: 60,
        least_entry_size: 64,
        kind: 4,
        nobits: Some(SHT_NOBITS),
        data_offset: 24,
        data_size: 32,
    },
    ElfTable {
        offset: 32,
        entry_size: 54,
        count: 56,
        least_entry_size: 56,
        kind: 0,
        nobits: None,
        data_offset: 8,
        data_size: 32,
    },
];

/// Checks that an ELF file has its section and program headers, and the bytes of each section and
/// segment.
pub(super) fn check(code: Bytes<'_>) -> Result<(), CodeError> {
    let number = |at, size| code.number(at, size);
    if number(4, 1)? != u64::from(ELF_CLASS_64) || number(18, 2)? != u64::from(MACHINE_CUDA) {
        return Err(CodeError::NoCode);
    }
    for table in TABLES {
        let (start, count) = (number(table.offset, 8)?, number(table.count, 2)?);
        let entry_size = number(table.entry_size, 2)?;
        if count > 0 && entry_size < table.least_entry_size {
            return Err(CodeError::NoCode);
        }
        code.require(start, entry_size * count)?;
        for entry in (0..count).map(|entry| start + entry * entry_size) {
            if Some(number(entry + table.kind, 4)?) != table.nobits {
                code.require(
                    number(entry + table.data_offset, 8)?,
                    number(entry + table.data_size, 8)?,
                )?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_elf(code: &[u8]) -> Result<(), CodeError> {
        check(Bytes(code))
    }

    const SECTIONS: usize = 64;
    const SEGMENT: usize = SECTIONS + 2 * 64;
    const DATA: usize = SEGMENT + 56;

    /// A file of two section headers, a program header, 16 bytes of the first section and 8 of the
    /// segment. The second section has no bytes.
    fn elf() -> Vec<u8> {
        let mut code = vec![0_u8; DATA + 16 + 8];
        let mut put = |at: usize, value: usize| code[at] = u8::try_from(value).unwrap();
        put(4, ELF_CLASS_64.into());
        put(18, MACHINE_CUDA.into());
        for (at, value) in [(40, SECTIONS), (58, 64), (60, 2), (32, SEGMENT), (54, 56), (56, 1)] {
            put(at, value);
        }
        for (at, value) in [(4, 1), (24, DATA), (32, 16)] {
            put(SECTIONS + at, value);
        }
        for (at, value) in [(4, SHT_NOBITS as usize), (24, DATA), (34, 1)] {
            put(SECTIONS + 64 + at, value);
        }
        for (at, value) in [(8, DATA - 1), (32, 16 + 8 + 1)] {
            put(SEGMENT + at, value);
        }
        code[..4].copy_from_slice(MAGIC);
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
    fn the_bytes_of_a_section_and_of_a_segment_are_required() {
        for (size, end) in [(SECTIONS + 32, DATA), (SEGMENT + 32, DATA - 1)] {
            let mut code = elf();
            let bytes = code.len() - end + 1;
            code[size] = u8::try_from(bytes).unwrap();
            let needed = (end + bytes) as u64;
            assert_eq!(check_elf(&code), Err(CodeError::Truncated { found: code.len(), needed }));
        }
    }

    #[test]
    fn wrong_numbers_are_errors_and_no_overflow() {
        let fields = [32, 40, SECTIONS + 24, SECTIONS + 32, SEGMENT + 8, SEGMENT + 32];
        for at in fields {
            let mut code = elf();
            code[at..at + 8].fill(0xff);
            assert!(matches!(check_elf(&code), Err(CodeError::Truncated { .. })), "{at}");
        }
        for at in [54, 58] {
            let mut code = elf();
            code[at] = 8;
            assert_eq!(check_elf(&code), Err(CodeError::NoCode), "entries of 8 bytes");
        }
    }

    #[test]
    fn code_for_another_machine_is_no_code() {
        let mut code = elf();
        code[18] = 62;
        assert_eq!(check_elf(&code), Err(CodeError::NoCode));
    }
}
