//! Cubins, and fatbins as `fatbinary` of CUDA 13.0 writes them.

/// The kind of an entry.
#[derive(Clone, Copy, Debug)]
pub enum EntryKind {
    /// Text.
    Ptx = 1,
    /// A cubin.
    MachineCode = 2,
}

/// The header of a cubin without sections and segments.
pub fn empty_cubin() -> [u8; 64] {
    let mut cubin = [0; 64];
    // The magic number, 64-bit addresses and the machine number of CUDA devices.
    cubin[..5].copy_from_slice(b"\x7fELF\x02");
    cubin[18] = 190;
    cubin
}

/// A fatbin with one entry for sm_75, which is not compressed.
pub fn fatbin(kind: EntryKind, image: &[u8]) -> Vec<u8> {
    let mut image = image.to_vec();
    image.resize((image.len() + 1).next_multiple_of(8), 0);
    let bytes = image.len() as u64;
    let entry: [&[u8]; 12] = [
        // The kind, the version of the entry, and the size of its header.
        &(kind as u16).to_le_bytes(),
        &0x101_u16.to_le_bytes(),
        &80_u32.to_le_bytes(),
        &bytes.to_le_bytes(),
        // Not compressed; where the options are; the ISA 6.3 and the SM target.
        &0_u32.to_le_bytes(),
        &64_u32.to_le_bytes(),
        &[3, 0, 6, 0],
        &75_u32.to_le_bytes(),
        &0_u64.to_le_bytes(),
        // 64-bit addresses, for Linux.
        &0x11_u64.to_le_bytes(),
        &[0; 16],
        // No options.
        &[0x48, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    ];
    let images = [entry.concat(), image].concat();
    let (magic, version, header) = (0xba55_ed50_u32, 1_u16, 16_u16);
    let start = [&magic.to_le_bytes()[..], &version.to_le_bytes(), &header.to_le_bytes()].concat();
    [start, (images.len() as u64).to_le_bytes().to_vec(), images].concat()
}
