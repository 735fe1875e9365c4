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
    /// None where there is nothing to copy, and only the event is of use.
    pinned: Option<PinnedBuffer<u8>>,
    free: Event,
}

/// The ring.
#[derive(Default)]
pub(crate) struct Staging {
    slots: Vec<Slot>,
    next: usize,
}

impl Staging {
    /// A ring for values of `bytes` bytes.
    pub(crate) fn new(context: &Context, bytes: usize) -> Result<Self> {
        let pinned = || match bytes {
            0 => Ok(None),
            _ => PinnedBuffer::zeroed(context, bytes).map(Some),
        };
        let slots =
            (0..SLOTS).map(|_| Ok(Slot { pinned: pinned()?, free: Event::untimed(context)? }));
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
        // SAFETY: the caller promises the target, and the mark follows.
        unsafe { self.enqueue(stream, target, bytes) }?;
        self.mark(stream).map(drop)
    }

    /// As [`Self::upload`], but [`Self::mark`] is left to the caller, behind the work that needs
    /// the copy: one event then says that both have run.
    ///
    /// # Safety
    /// As [`Self::upload`], and the mark must follow before the next copy.
    pub(crate) unsafe fn enqueue(
        &mut self,
        stream: &Stream,
        target: u64,
        bytes: &[u8],
    ) -> Result<()> {
        let Some(slot) = self.slots.get_mut(self.next) else { return Ok(()) };
        let Some(pinned) = &mut slot.pinned else { return Ok(()) };
        slot.free.synchronize()?;
        pinned.copy_from_slice(bytes);
        // SAFETY: the caller promises the target. The slot is not written before its event, and
        // pinned memory is freed only after a wait for the context.
        unsafe { stream.copy_to_device(target, pinned.as_ptr(), bytes.len()) }
    }

    /// Makes the slot free again once everything enqueued on `stream` so far has run, and gives the
    /// event that says so, until it is the slot's turn again; `None` in an empty ring.
    pub(crate) fn mark(&mut self, stream: &Stream) -> Result<Option<Event>> {
        let Some(slot) = self.slots.get(self.next) else { return Ok(None) };
        self.next = (self.next + 1) % self.slots.len();
        // Without its event the slot would look free while the copy may still read it.
        slot.free.mark(stream)?;
        Ok(Some(slot.free.clone()))
    }
}

impl std::fmt::Debug for Staging {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Staging({} slots)", self.slots.len())
    }
}
