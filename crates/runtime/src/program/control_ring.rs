//! Controls on their way to the device: slots in pinned memory, which the device reads by itself.
//!
//! The first operation of a step is a kernel that takes the values of the next slot
//! ([`FetchStepParameters`]). Nothing is copied by the driver, so that a step is one call beside making
//! the context current. What the host stores before it launches is there when the kernel runs:
//! accesses to memory that both share are ordered by streams and events (CUDA C++ Programming
//! Guide, "Mapped Memory"), and volatile ones are strong and of system scope (PTX ISA, "Memory
//! Consistency Model"). Pinned memory has the same address for the device (CUDA driver API,
//! "Unified Addressing").
//!
//! A slot is written again only after the device has told, by a count in the same memory, that it
//! has taken what was there. The host looks at the count when it has run out of slots, and no event
//! is needed. Who waits in vain, since the context is lost, waits for the stream, which tells.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use retrograph_driver::hot_path::{MAX_PREFETCH_BYTES, prefetch};
use retrograph_driver::{Context, Owner, PinnedBuffer, Result, Stream};
use retrograph_kernels::View;
use retrograph_kernels::ops::FetchStepParameters;

use super::error::StepError;
use super::ring_counter::RingCounter;

type Layout = FetchStepParameters<u64>;

/// How long the count is looked at before the whole stream is waited for. That leaves the device
/// without work for some microseconds, which is little beside a step of this length.
const PATIENCE: Duration = Duration::from_millis(1);

/// The host's end of a ring.
pub(crate) struct ControlRing {
    counter: RingCounter,
    words: *mut u32,
    slot_words: usize,
    len: usize,
    /// Shared with the graphs whose nodes name it. Nobody looks at it as a slice.
    pinned: Arc<PinnedBuffer<u32>>,
}

// SAFETY: the words are those of the buffer, which every thread may use and free. The host's are
// written by exclusive references only, and what the device writes is read as an atomic.
unsafe impl Send for ControlRing {}
// SAFETY: as above; shared references read nothing but the atomic.
unsafe impl Sync for ControlRing {}

impl ControlRing {
    /// A ring for values of `words` words, which nothing was put into.
    pub(crate) fn new(context: &Context, words: usize) -> Result<Self> {
        let (slot_words, len) = (Layout::slot_words(words), Layout::ring_words(words));
        let mut pinned = PinnedBuffer::zeroed(context, len)?;
        let words = pinned.as_mut_ptr();
        Ok(Self {
            counter: RingCounter::default(),
            words,
            slot_words,
            len,
            pinned: pinned.shared(),
        })
    }

    /// The words as the device names them.
    pub(crate) fn view(&self) -> View<u64, u32> {
        View::new(self.words.expose_provenance() as u64, self.len)
    }

    /// What keeps the memory.
    pub(crate) fn owner(&self) -> Owner {
        self.pinned.clone()
    }

    /// Writes `values` for the next launch, after waiting for a slot. They may be written again
    /// until [`Self::accepted`]. Everything that was launched before must be ordered in front of
    /// `stream`.
    ///
    /// # Errors
    /// If waiting fails, or [`StepError::ParametersOutOfStep`].
    pub(crate) fn put(&mut self, stream: &Stream, values: &[u8]) -> Result<(), StepError> {
        if !self.counter.has_capacity(Layout::SLOTS) {
            self.wait(stream)?;
        }
        let slot = self.slot();
        // SAFETY: the slot lies in the memory and has room for the values, whose length is that of
        // all values of the ring. The device does not look at it: it has taken what was there, and
        // what is launched already takes the slots before.
        unsafe {
            let target = slot.add(Layout::SLOT_HEADER_WORDS).cast::<u8>();
            target.copy_from_nonoverlapping(values.as_ptr(), values.len());
        }
        self.set_number(self.counter.number());
        Ok(())
    }

    /// The launch that takes the values was accepted.
    pub(crate) fn accepted(&mut self) {
        self.counter.accepted();
    }

    /// No launch takes the values: they are as if never written, whoever launches next.
    pub(crate) fn withdraw(&mut self) {
        self.set_number(self.counter.number_before(Layout::SLOTS));
    }

    /// Whether the device has taken all that it was given, once nothing is in flight.
    pub(crate) fn is_in_step(&self) -> bool {
        let mut counter = self.counter;
        counter.look(self.count());
        counter.in_flight() == 0
    }

    /// Asks the processor for the slot that the next values go to.
    pub(crate) fn prefetch_next(&self) {
        prefetch(self.slot(), (self.slot_words * size_of::<u32>()).min(MAX_PREFETCH_BYTES));
    }

    fn wait(&mut self, stream: &Stream) -> Result<(), StepError> {
        let started = Instant::now();
        while !self.has_capacity() && started.elapsed() < PATIENCE {
            std::hint::spin_loop();
        }
        if self.has_capacity() {
            return Ok(());
        }
        stream.synchronize().map_err(|cause| StepError::NotStarted { cause })?;
        // Nothing is in flight any more.
        self.counter.look(self.count());
        match self.counter.in_flight() {
            0 => Ok(()),
            behind => Err(StepError::ParametersOutOfStep { by: behind as i32 }),
        }
    }

    fn has_capacity(&mut self) -> bool {
        self.counter.look(self.count());
        self.counter.has_capacity(Layout::SLOTS)
    }

    /// How many values the device has taken.
    fn count(&self) -> u32 {
        // SAFETY: the word is the first of the memory, which lives as long as `self`, and both
        // sides touch it by such accesses alone.
        unsafe { AtomicU32::from_ptr(self.words) }.load(Ordering::Acquire)
    }

    fn set_number(&mut self, number: u32) {
        // SAFETY: the word lies in the memory, and the host alone writes it.
        unsafe { AtomicU32::from_ptr(self.slot()) }.store(number, Ordering::Release);
    }

    /// The slot of the next values.
    fn slot(&self) -> *mut u32 {
        let at = Layout::HEADER_WORDS + self.counter.slot(Layout::SLOTS) * self.slot_words;
        self.words.wrapping_add(at)
    }
}
