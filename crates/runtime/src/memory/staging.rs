//! Host values on their way to the device: a ring of pinned slots.
//!
//! A copy may run long after the host has enqueued it. A slot is therefore written again only after
//! an event behind its last copy. Slots come in groups, each with an event behind its last slot:
//! recording an event costs the host about as much as a copy, so that one for each would double the
//! cost. The host is ahead of the device by a group of copies at least before it has to wait. A
//! [`super::DeviceScalar`] goes this way, and so do tables when a program is bound to other memory.

use crate::context::Context;
use crate::error::Result;
use crate::event::Event;
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
        Ok(Self { pinned, slot_bytes, copied, next: 0 })
    }

    /// Whether nothing can be uploaded, since there are no slots.
    pub(crate) fn is_empty(&self) -> bool {
        self.pinned.is_none()
    }

    /// Enqueues the copy of `bytes` to `target`, after waiting for the slot to be free.
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
        // SAFETY: the caller promises the target. The slot is not written before its event, and
        // pinned memory is freed only after a wait for the context.
        unsafe { stream.copy_to_device(target, slot.as_ptr(), bytes.len()) }?;
        self.next = (self.next + 1) % (GROUP * GROUPS);
        if self.next.is_multiple_of(GROUP) {
            // Without the event the slots would look free while copies may still read them.
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
