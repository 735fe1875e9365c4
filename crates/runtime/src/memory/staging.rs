//! Host values on their way to the device: a ring of pinned slots.
//!
//! A copy may run long after the host has enqueued it. A slot is therefore written again only after
//! the event behind its last copy; with several slots the host is ahead of the device by as many
//! copies before it has to wait. The control block of a program goes this way, and so does a
//! [`super::DeviceScalar`].

use crate::context::Context;
use crate::error::Result;
use crate::event::Event;
use crate::stream::Stream;

use super::PinnedBuffer;

/// Copies that the host may be ahead of the device.
const SLOTS: usize = 4;

struct Slot {
    pinned: PinnedBuffer<u8>,
    copied: Event,
}

/// The ring.
#[derive(Default)]
pub(crate) struct Staging {
    slots: Vec<Slot>,
    next: usize,
}

impl Staging {
    /// A ring for values of `bytes` bytes; none is needed for empty ones.
    pub(crate) fn new(context: &Context, bytes: usize) -> Result<Self> {
        let count = if bytes == 0 { 0 } else { SLOTS };
        let slots = (0..count).map(|_| {
            let pinned = PinnedBuffer::zeroed(context, bytes)?;
            Ok(Slot { pinned, copied: Event::untimed(context)? })
        });
        Ok(Self { slots: slots.collect::<Result<_>>()?, next: 0 })
    }

    /// Whether nothing can be uploaded, since there are no slots.
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Enqueues the copy of `bytes` to `target`, after waiting for the slot to be free.
    ///
    /// # Safety
    /// `target` must be the start of live device memory of this size until the copy has run.
    pub(crate) unsafe fn upload(
        &mut self,
        stream: &Stream,
        target: u64,
        bytes: &[u8],
    ) -> Result<()> {
        let count = self.slots.len();
        let Some(slot) = self.slots.get_mut(self.next) else { return Ok(()) };
        slot.copied.synchronize()?;
        slot.pinned.copy_from_slice(bytes);
        // SAFETY: the caller promises the target. The slot is not written before its event, and
        // pinned memory is freed only after a wait for the context.
        unsafe { stream.copy_to_device(target, slot.pinned.as_ptr(), bytes.len()) }?;
        self.next = (self.next + 1) % count;
        // Without its event the slot would look free while the copy may still read it.
        slot.copied.mark(stream)
    }
}

impl std::fmt::Debug for Staging {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Staging({} slots)", self.slots.len())
    }
}
