//! Host values on their way to the device: a ring of pinned slots.
//!
//! A copy may run long after the host has enqueued it. A slot is therefore written again only after
//! an event behind its last copy. Slots come in groups, each with an event behind its last slot:
//! recording an event costs the host about as much as a copy, so that one for each would double the
//! cost. The host is ahead of the device by a group of copies at least before it has to wait. The
//! control block of a program goes this way, and so does a [`super::DeviceScalar`].

use crate::context::Context;
use crate::error::Result;
use crate::event::Event;
use crate::frequent::{MOST_PREFETCHED, prefetch};
use crate::stream::Stream;

use super::PinnedBuffer;

/// Slots of a group.
const GROUP: usize = 8;
/// Groups of the ring.
const GROUPS: usize = 2;
/// Slots start at multiples of this, so that no two share a line of the processor's cache.
const ALIGNMENT: usize = 64;

/// The ring.
#[derive(Default)]
pub(crate) struct Staging {
    pinned: Option<PinnedBuffer<u8>>,
    slot_bytes: usize,
    /// Behind the last copies of each group. All copies of a group are in one order, that of the
    /// caller, whatever their streams.
    copied: Vec<Event>,
    next: usize,
    /// The slot of the last value, if its copy was enqueued. Nothing is written into it before all
    /// others were.
    last: Option<usize>,
}

impl Staging {
    /// A ring for values of `bytes` bytes; none is needed for empty ones.
    pub(crate) fn new(context: &Context, bytes: usize) -> Result<Self> {
        if bytes == 0 {
            return Ok(Self::default());
        }
        let slot_bytes = bytes.next_multiple_of(ALIGNMENT);
        let pinned = Some(PinnedBuffer::zeroed(context, slot_bytes * GROUP * GROUPS)?);
        let copied = (0..GROUPS).map(|_| Event::untimed(context)).collect::<Result<_>>()?;
        Ok(Self { pinned, slot_bytes, copied, next: 0, last: None })
    }

    /// Whether nothing can be uploaded, since there are no slots.
    pub(crate) fn is_empty(&self) -> bool {
        self.pinned.is_none()
    }

    /// Whether `bytes` are the last value, whose copy was enqueued and did not fail. Empty values
    /// need no copy.
    pub(crate) fn holds(&self, bytes: &[u8]) -> bool {
        let Some(pinned) = &self.pinned else { return true };
        let slot = self.last.map(|slot| slot * self.slot_bytes);
        slot.is_some_and(|start| pinned[start..start + bytes.len()] == *bytes)
    }

    /// Enqueues the copy of `bytes` to `target`, after waiting for the slot to be free. The caller
    /// has bound `stream` to be enqueued on.
    ///
    /// # Safety
    /// `target` must be the start of live device memory of this size until the copy has run, and
    /// `stream` must be behind the copies before this one.
    pub(crate) unsafe fn upload(
        &mut self,
        stream: &Stream,
        target: u64,
        bytes: &[u8],
    ) -> Result<()> {
        let Some(pinned) = &mut self.pinned else { return Ok(()) };
        let copied = &self.copied[self.next / GROUP];
        if self.next.is_multiple_of(GROUP) {
            copied.synchronize()?;
        }
        let start = self.next * self.slot_bytes;
        let slot = &mut pinned[start..start + bytes.len()];
        slot.copy_from_slice(bytes);
        self.last = None;
        // SAFETY: the caller promises the target. The slot is not written before its event, and
        // pinned memory is freed only after a wait for the context.
        unsafe { stream.copy_to_device_bound(target, slot.as_ptr(), bytes.len()) }?;
        let held = self.next;
        self.next = (self.next + 1) % (GROUP * GROUPS);
        if self.next.is_multiple_of(GROUP) {
            // Without the event the slots would look free while copies may still read them.
            copied.mark(stream)?;
        }
        self.last = Some(held);
        Ok(())
    }
}

impl Staging {
    /// Asks the processor for the slot that the next value goes to.
    pub(crate) fn prefetch_next(&self) {
        if let Some(pinned) = &self.pinned {
            let start = pinned.as_ptr().wrapping_add(self.next * self.slot_bytes);
            prefetch(start, self.slot_bytes.min(MOST_PREFETCHED));
            // Values that differ do so mostly at their start.
            prefetch(pinned.as_ptr().wrapping_add(self.last.unwrap_or(0) * self.slot_bytes), 1);
        }
    }
}

impl std::fmt::Debug for Staging {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Staging({} groups)", self.copied.len())
    }
}
