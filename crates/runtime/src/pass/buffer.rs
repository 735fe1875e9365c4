//! The buffers of a pass: name, size and kind.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

use retrograph_kernel_abi::View;

/// Alignment of transients and of arrays of controls, as of driver allocations.
pub(super) const ALIGNMENT: usize = 256;

/// A typed range of elements of a buffer of a [`Pass`](super::Pass).
pub type Slice<T> = View<BufferId, T>;

/// The process-wide number of a buffer's pass, to detect slices of other passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PassId(u32);

impl PassId {
    pub(crate) fn fresh() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        Self::take(&NEXT)
    }

    /// Returns the next number of a counter, which saturates.
    fn take(next: &AtomicU32) -> Self {
        let taken = next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |it| it.checked_add(1));
        // A reused number would let slices of one pass be used in another.
        Self(taken.expect("a process describes fewer than 2³² passes"))
    }
}

/// A buffer of one pass.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId {
    pub(crate) pass: PassId,
    pub(crate) index: u32,
}

impl BufferId {
    /// Position among the buffers of the pass, in the order of declaration.
    pub fn index(self) -> usize {
        self.index as usize
    }
}

impl fmt::Debug for BufferId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "buffer {}", self.index)
    }
}

/// The provider and lifetime of a buffer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BufferKind {
    /// Bound when a program is built; holds its contents between steps.
    External,
    /// Allocated by the program; uninitialized before its first write of each step.
    Transient,
    /// A field of the control block: set by the host before each step, read-only for operations.
    Control,
}

impl fmt::Display for BufferKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::External => "external",
            Self::Transient => "transient",
            Self::Control => "control",
        })
    }
}

/// A declared buffer.
#[derive(Clone, Debug)]
pub struct Buffer {
    pub(crate) name: String,
    pub(crate) kind: BufferKind,
    pub(crate) element: &'static str,
    pub(crate) element_bytes: usize,
    pub(crate) len: usize,
}

impl Buffer {
    /// The name, unique within the pass.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The kind.
    pub fn kind(&self) -> BufferKind {
        self.kind
    }

    /// The name of the element type, for example `f32`.
    pub fn element(&self) -> &'static str {
        self.element
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.len * self.element_bytes
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    fn a_pass_number_does_not_come_back() {
        let next = AtomicU32::new(u32::MAX - 1);
        assert_eq!(PassId::take(&next), PassId(u32::MAX - 1));
        for _ in 0..2 {
            assert!(catch_unwind(|| PassId::take(&next)).is_err());
            assert_eq!(next.load(Ordering::Relaxed), u32::MAX);
        }
    }
}
