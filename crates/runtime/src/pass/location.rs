//! The memory location of an access.

use std::ops::Range;

/// A memory space in which ranges can overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Space {
    /// A buffer with its own memory.
    Buffer(u32),
    /// The arena of the transients.
    Arena,
}

/// A byte range of a space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) space: Space,
    pub(crate) bytes: Range<usize>,
}

impl Location {
    /// The location of an access to a buffer with its own memory.
    pub(crate) fn unshared(range: &super::access::BufferAccess) -> Self {
        Self { space: Space::Buffer(range.buffer.index), bytes: range.bytes.clone() }
    }
}
