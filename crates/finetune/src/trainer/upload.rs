//! Weights on their way to the device, through pinned memory: while one chunk is copied, the next
//! is read or computed.

use retrograph_runtime::{DeviceBuffer, Event, PinnedBuffer, Stream};

use crate::error::Result;

/// Elements of a chunk: 16 MiB, far more than a copy needs to run at full speed.
const CHUNK: usize = 4 << 20;

/// Chunks: one is copied while the other is filled.
const SLOTS: usize = 2;

/// Pinned memory with the stream of its copies.
#[derive(Debug)]
pub(super) struct Uploader<'a> {
    stream: &'a Stream,
    slots: Vec<(PinnedBuffer<f32>, Event)>,
    next: usize,
}

impl<'a> Uploader<'a> {
    /// An uploader for tensors of at most `largest` elements.
    pub(super) fn new(stream: &'a Stream, largest: usize) -> Result<Self> {
        let context = stream.context();
        let slot = |_| {
            let pinned = PinnedBuffer::zeroed(context, largest.min(CHUNK))?;
            Ok((pinned, Event::untimed(context)?))
        };
        let slots = (0..SLOTS).map(slot).collect::<Result<_>>()?;
        Ok(Self { stream, slots, next: 0 })
    }

    /// A buffer of `len` elements, filled by calls of `fill` with the first element of a chunk and
    /// the chunk. The copies may still be under way.
    pub(super) fn upload(
        &mut self,
        len: usize,
        fill: &mut dyn FnMut(usize, &mut [f32]) -> Result<()>,
    ) -> Result<DeviceBuffer<f32>> {
        let buffer = DeviceBuffer::uninit(self.stream.context(), len)?;
        let mut first = 0;
        while first < len {
            let (pinned, free) = &mut self.slots[self.next];
            free.synchronize()?;
            let count = pinned.len().min(len - first);
            let chunk = &mut pinned[..count];
            fill(first, chunk)?;
            let target = buffer.address() + (first * size_of::<f32>()) as u64;
            let bytes: &[u8] = bytemuck::cast_slice(chunk);
            // SAFETY: the range lies in the buffer. The slot is not written before the event behind
            // its copy has passed, and device and pinned memory are freed only after a wait for the
            // context.
            unsafe { self.stream.copy_to_device(target, bytes.as_ptr(), bytes.len()) }?;
            free.record(self.stream)?;
            self.next = (self.next + 1) % SLOTS;
            first += count;
        }
        Ok(buffer)
    }
}
