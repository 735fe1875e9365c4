//! Memory for the pointees of arguments, valid until the scenario ends.

/// Blocks that never move.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    blocks: Vec<Box<[Aligned]>>,
}

/// The unit of blocks, with the strictest alignment of any argument.
#[derive(Clone, Copy, Debug)]
#[repr(align(128))]
struct Aligned {
    _bytes: [u8; 128],
}

/// An address in an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ArenaAddress(usize);

/// The byte that fills outputs before a call.
pub(crate) const UNWRITTEN: u8 = 0xA5;

impl Arena {
    /// A block of at least `size` bytes, each of them `byte`.
    pub(crate) fn block(&mut self, size: usize, byte: u8) -> ArenaAddress {
        let count = size.div_ceil(128).max(1);
        self.blocks.push(vec![Aligned { _bytes: [byte; 128] }; count].into_boxed_slice());
        let block = self.blocks.last_mut().expect("one was just pushed");
        ArenaAddress(block.as_mut_ptr().expose_provenance())
    }

    /// A block that holds these bytes.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> ArenaAddress {
        let place = self.block(bytes.len(), 0);
        place.write(bytes);
        place
    }
}

impl ArenaAddress {
    /// The address that a driver wrote.
    pub(crate) fn of_address(address: u64) -> Self {
        Self(address as usize)
    }

    pub(crate) fn address(self) -> u64 {
        self.0 as u64
    }

    pub(crate) fn offset(self, bytes: usize) -> Self {
        Self(self.0 + bytes)
    }

    /// Writes bytes, at most the size of the block.
    pub(crate) fn write(self, bytes: &[u8]) {
        let to = std::ptr::with_exposed_provenance_mut::<u8>(self.0);
        // SAFETY: the address is in a block of the arena of the running scenario, which is large
        // enough: the encoder asks for a block of the size of the type that it writes.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    /// Reads a number of bytes.
    pub(crate) fn read(self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        let from = std::ptr::with_exposed_provenance::<u8>(self.0);
        // SAFETY: the block is large enough, or the driver returned the address with this size.
        unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), count) };
        bytes
    }

    /// The text up to a zero byte.
    pub(crate) fn text(self) -> String {
        let from = std::ptr::with_exposed_provenance::<std::ffi::c_char>(self.0);
        // SAFETY: the driver returned this address as a C string.
        unsafe { std::ffi::CStr::from_ptr(from) }.to_string_lossy().into_owned()
    }
}

/// The little-endian number in at most eight bytes.
pub(crate) fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    let count = bytes.len().min(8);
    word[..count].copy_from_slice(&bytes[..count]);
    u64::from_le_bytes(word)
}
