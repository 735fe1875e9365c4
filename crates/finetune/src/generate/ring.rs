//! Tokens on their way to the host, without anybody waiting for a step.
//!
//! Behind each step its token is copied to pinned memory, in front of an event. The host looks at
//! the oldest token when its event has passed, while the steps behind it run.

use std::collections::VecDeque;

use retrograph_runtime::{Context, Event, PinnedBuffer, Stream};

use crate::error::Result;
use crate::model::SAMPLED;

/// Steps that may be under way at once: one runs, one waits behind it.
pub(super) const AHEAD: usize = 2;

#[derive(Debug)]
struct Slot {
    words: PinnedBuffer<u32>,
    copied: Event,
}

/// The tokens under way, oldest first.
#[derive(Debug)]
pub(super) struct Ring {
    free: Vec<Slot>,
    under_way: VecDeque<Slot>,
    /// Behind the token that was handed out last.
    last: Option<Event>,
    spare: Option<Event>,
}

impl Ring {
    pub(super) fn new(context: &Context) -> Result<Self> {
        let slot = |_| -> Result<Slot> {
            let words = PinnedBuffer::zeroed(context, SAMPLED)?;
            Ok(Slot { words, copied: Event::new(context)? })
        };
        let free = (0..AHEAD).map(slot).collect::<Result<_>>()?;
        let spare = Some(Event::new(context)?);
        Ok(Self { free, under_way: VecDeque::new(), last: None, spare })
    }

    /// Whether a token must be taken before another can be under way.
    pub(super) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// Enqueues the copy of the words at `address` behind what was enqueued on `stream`.
    pub(super) fn push(&mut self, stream: &Stream, address: u64) -> Result<()> {
        let mut slot = self.free.pop().expect("whoever starts a step asks whether there is room");
        let target = slot.words.as_mut_ptr().cast();
        // SAFETY: both places have this many bytes. Nobody looks at the slot before the event
        // behind the copy has passed, and pinned memory waits for the context before it is freed.
        let copied = unsafe { stream.copy_to_host(target, address, SAMPLED * size_of::<u32>()) };
        let done = copied.and_then(|()| slot.copied.record(stream));
        self.under_way.push_back(slot);
        Ok(done?)
    }

    /// The words of the oldest step, after waiting for it, and the milliseconds on the device since
    /// the one before; `None` when nothing is under way.
    pub(super) fn take(&mut self) -> Result<Option<([u32; SAMPLED], Option<f32>)>> {
        let Some(slot) = self.under_way.front() else { return Ok(None) };
        slot.copied.synchronize()?;
        let mut slot = self.under_way.pop_front().expect("it was there a moment ago");
        let words = [slot.words[0], slot.words[1]];
        let before = self.last.take();
        let elapsed = before.as_ref().map(|before| slot.copied.elapsed_ms(before)).transpose();
        // The event is kept for the next difference, and the slot gets the one before.
        let fresh = before.or_else(|| self.spare.take());
        if let Some(fresh) = fresh {
            self.last = Some(std::mem::replace(&mut slot.copied, fresh));
        }
        self.free.push(slot);
        Ok(Some((words, elapsed?)))
    }

    /// Forgets what is under way. Its slots are free when their copies have run.
    pub(super) fn clear(&mut self) -> Result<()> {
        while let Some(slot) = self.under_way.front() {
            slot.copied.synchronize()?;
            self.free.extend(self.under_way.pop_front());
        }
        if let Some(last) = self.last.take() {
            self.spare = Some(last);
        }
        Ok(())
    }
}
