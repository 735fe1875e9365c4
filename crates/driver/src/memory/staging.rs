//! Staging of host values for asynchronous uploads, in a ring of pinned slots.
//!
//! A copy may run long after it was enqueued, so a slot is reused only after an event recorded
//! after its last copy. Recording an event costs about as much as a copy; slots therefore come in
//! groups with one event each. The host can be at least one group of copies ahead of the device.

use crate::context::Context;
use crate::error::Result;
use crate::event::Event;
use crate::stream::OutsideCapture;

use super::pinned::PinnedBuffer;

/// Slots per group.
const GROUP: usize = 8;
/// Groups in the ring.
const GROUPS: usize = 2;
/// Alignment of slots: no two share a cache line.
const ALIGNMENT: usize = 64;

/// A ring of pinned slots for uploads of small values.
#[derive(Default)]
pub struct Staging {
    pinned: Option<PinnedBuffer<u8>>,
    slot_bytes: usize,
    /// Recorded after the last copy of each group.
    copied: Vec<Event>,
    next: usize,
}

impl Staging {
    /// Creates a ring for values of up to `bytes` bytes; without slots for 0.
    ///
    /// # Errors
    /// As [`PinnedBuffer::zeroed`].
    pub fn new(context: &Context, bytes: usize) -> Result<Self> {
        if bytes == 0 {
            return Ok(Self::default());
        }
        let slot_bytes = bytes.next_multiple_of(ALIGNMENT);
        let pinned = Some(PinnedBuffer::zeroed(context, slot_bytes * GROUP * GROUPS)?);
        let copied = (0..GROUPS).map(|_| Event::untimed(context)).collect::<Result<_>>()?;
        Ok(Self { pinned, slot_bytes, copied, next: 0 })
    }

    /// Whether there are no slots, so that nothing can be uploaded.
    pub fn is_empty(&self) -> bool {
        self.pinned.is_none()
    }

    /// Enqueues a copy of `bytes` to `target`, after waiting for a free slot.
    ///
    /// # Safety
    /// `target` must be the start of live device memory of this size until the copy has finished,
    /// and `stream` must be ordered after the streams of earlier uploads.
    ///
    /// # Errors
    /// If the driver fails. Then nothing was enqueued, or the copy has finished.
    ///
    /// # Panics
    /// If there are more bytes than a slot holds.
    pub unsafe fn upload(
        &mut self,
        stream: &OutsideCapture<'_>,
        target: u64,
        bytes: &[u8],
    ) -> Result<()> {
        let Some(pinned) = &mut self.pinned else { return Ok(()) };
        assert!(bytes.len() <= self.slot_bytes, "a slot has {} bytes", self.slot_bytes);
        let copied = &self.copied[self.next / GROUP];
        if self.next.is_multiple_of(GROUP) {
            copied.synchronize()?;
        }
        let start = self.next * self.slot_bytes;
        let slot = &mut pinned[start..start + bytes.len()];
        slot.copy_from_slice(bytes);
        // SAFETY: the caller vouches for the target. The slot is not written before its event, and
        // pinned memory is freed only after a wait for the context.
        unsafe { stream.memcpy_htod(target, slot.as_ptr(), bytes.len()) }?;
        self.next = (self.next + 1) % (GROUP * GROUPS);
        if self.next.is_multiple_of(GROUP) {
            // Without the event, the slots would seem free while copies may still read them.
            copied.mark(stream)?;
        }
        Ok(())
    }
}

impl std::fmt::Debug for Staging {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Staging({} groups)", self.copied.len())
    }
}
