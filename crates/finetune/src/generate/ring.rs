//! Copies of tokens to the host, which overlap later steps.
//!
//! After each step its tokens are copied to pinned memory, and an event is recorded. The host waits
//! for the event of the oldest copy while later steps run.

use std::collections::VecDeque;

use retrograph_runtime::{Context, Event, PinnedBuffer, Stream};

use crate::error::Result;
use crate::model::SAMPLED;

/// Maximum steps in flight: one runs, and one waits in the stream.
pub(super) const AHEAD: usize = 2;

/// The token and the status of each sequence.
pub(super) type Words = Vec<[u32; SAMPLED]>;

#[derive(Debug)]
struct Slot {
    words: PinnedBuffer<u32>,
    copied: Event,
}

/// The copies in flight, oldest first.
#[derive(Debug)]
pub(super) struct Ring {
    words: usize,
    free: Vec<Slot>,
    in_flight: VecDeque<Slot>,
    /// The event after the copy that was returned last.
    last: Option<Event>,
    spare: Option<Event>,
}

impl Ring {
    /// Returns a ring of `copies` with the words of `batch` sequences each.
    pub(super) fn new(context: &Context, copies: usize, batch: usize) -> Result<Self> {
        let words = batch * SAMPLED;
        let slot = |_| -> Result<Slot> {
            let words = PinnedBuffer::zeroed(context, words)?;
            Ok(Slot { words, copied: Event::new(context)? })
        };
        let free = (0..copies).map(slot).collect::<Result<_>>()?;
        let spare = Some(Event::new(context)?);
        Ok(Self { words, free, in_flight: VecDeque::new(), last: None, spare })
    }

    /// Returns whether a copy must be taken before another one can start.
    pub(super) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// Enqueues the copy of the words at `address` on `stream`.
    pub(super) fn push(&mut self, stream: &Stream, address: u64) -> Result<()> {
        let stream = stream.outside_capture("copying sampled tokens")?;
        let mut slot = self.free.pop().expect("the caller has checked that the ring is not full");
        let target = slot.words.as_mut_ptr().cast();
        let bytes = self.words * size_of::<u32>();
        // SAFETY: source and destination have this many words. The host reads the slot only after
        // the event of the copy, and freeing pinned memory waits for the context.
        let copied = unsafe { stream.memcpy_dtoh(target, address, bytes) };
        let done = copied.and_then(|()| slot.copied.record(&stream));
        self.in_flight.push_back(slot);
        Ok(done?)
    }

    /// Waits for the oldest copy. Returns the words of each sequence, and the milliseconds on the
    /// device since the copy before; `None` if nothing is in flight.
    pub(super) fn take(&mut self) -> Result<Option<(Words, Option<f32>)>> {
        let Some(slot) = self.in_flight.front() else { return Ok(None) };
        slot.copied.synchronize()?;
        let mut slot = self.in_flight.pop_front().expect("it was there a moment ago");
        let (tokens, statuses) = slot.words.split_at(self.words / SAMPLED);
        let words = std::iter::zip(tokens, statuses).map(|(token, status)| [*token, *status]);
        let words = words.collect();
        let before = self.last.take();
        let elapsed = before.as_ref().map(|before| slot.copied.elapsed_ms(before)).transpose();
        // Keep the event for the next time difference; the slot gets the previous event.
        let fresh = before.or_else(|| self.spare.take());
        if let Some(fresh) = fresh {
            self.last = Some(std::mem::replace(&mut slot.copied, fresh));
        }
        self.free.push(slot);
        Ok(Some((words, elapsed?)))
    }

    /// Waits for the copies in flight and drops them.
    pub(super) fn clear(&mut self) -> Result<()> {
        while let Some(slot) = self.in_flight.front() {
            slot.copied.synchronize()?;
            self.free.extend(self.in_flight.pop_front());
        }
        if let Some(last) = self.last.take() {
            self.spare = Some(last);
        }
        Ok(())
    }
}
