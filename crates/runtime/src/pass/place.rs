//! Where the bytes of a touch really lie.

use std::ops::Range;

/// A space of bytes within which ranges can overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Space {
    /// One buffer of its own memory.
    Buffer(u32),
    /// The memory that transients share.
    Arena,
}

/// A range of bytes of a space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) space: Space,
    pub(crate) bytes: Range<usize>,
}

impl Place {
    /// The place of bytes of a buffer that shares its memory with no other.
    pub(crate) fn unshared(range: &super::access::BufferAccess) -> Self {
        Self { space: Space::Buffer(range.buffer.index), bytes: range.bytes.clone() }
    }
}
