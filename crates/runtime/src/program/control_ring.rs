//! The control ring: slots in pinned memory from which the device fetches the controls of a step.
//!
//! The first operation of a step is a kernel that fetches the next slot
//! ([`step_parameters`](retrograph_kernel_abi::step_parameters)). The driver copies no data, so
//! apart from making the context current, a step is one call. Host stores before a launch are
//! visible to its kernels: streams and events order accesses to mapped memory (CUDA C++ Programming
//! Guide, "Mapped Memory"), and volatile accesses are strong and of system scope (PTX ISA, "Memory
//! Consistency Model"). Pinned memory has the same address on the device (CUDA driver API, "Unified
//! Addressing").
//!
//! The device counts its fetches in the same memory. A slot is rewritten only after it was fetched;
//! the host reads the count when it runs out of slots, so no event is needed. If the count does not
//! advance, the host waits for the stream, which reports a lost context.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use retrograph_driver::hot_path::{MAX_PREFETCH_BYTES, prefetch};
use retrograph_driver::{Context, Owner, PinnedBuffer, Result, Stream};
use retrograph_kernel_abi::View;
use retrograph_kernel_abi::step_parameters::ring::{self, HEADER_WORDS, SLOT_HEADER_WORDS, SLOTS};

use super::error::StepError;
use super::ring_counter::RingCounter;

/// How long to poll the count before waiting for the stream, which leaves the device idle for some
/// microseconds.
const PATIENCE: Duration = Duration::from_millis(1);

/// The host side of the ring.
pub(crate) struct ControlRing {
    counter: RingCounter,
    words: *mut u32,
    slot_words: usize,
    len: usize,
    /// Shared with graphs whose nodes use it; never accessed as a slice.
    pinned: Arc<PinnedBuffer<u32>>,
}

// SAFETY: the words belong to the buffer, which any thread may use and free. The host writes
// through exclusive references only, and reads the word that the device writes as an atomic.
unsafe impl Send for ControlRing {}
// SAFETY: as above; shared references read only the atomic.
unsafe impl Sync for ControlRing {}

impl ControlRing {
    /// Returns an empty ring for controls of `words` words.
    pub(crate) fn new(context: &Context, words: usize) -> Result<Self> {
        let (slot_words, len) = (ring::slot_words(words), ring::words(words));
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

    /// The ring as device memory.
    pub(crate) fn view(&self) -> View<u64, u32> {
        View::new(self.words.expose_provenance() as u64, self.len)
    }

    /// Keeps the memory alive.
    pub(crate) fn owner(&self) -> Owner {
        self.pinned.clone()
    }

    /// Writes `values` for the next launch, after waiting for a slot. They may be rewritten until
    /// [`Self::accepted`]. `stream` must be ordered after all earlier launches.
    ///
    /// # Errors
    /// If waiting fails, or [`StepError::ParametersOutOfStep`].
    pub(crate) fn put(&mut self, stream: &Stream, values: &[u8]) -> Result<(), StepError> {
        if !self.counter.has_capacity(SLOTS as usize) {
            self.wait(stream)?;
        }
        let slot = self.slot();
        // SAFETY: the slot is in the memory and holds the values, which all have the same length.
        // The device does not read it: it has fetched the previous values, and enqueued launches
        // fetch earlier slots.
        unsafe {
            let target = slot.add(SLOT_HEADER_WORDS as usize).cast::<u8>();
            target.copy_from_nonoverlapping(values.as_ptr(), values.len());
        }
        self.set_number(self.counter.number());
        Ok(())
    }

    /// Records that the launch that fetches the values was accepted.
    pub(crate) fn accepted(&mut self) {
        self.counter.accepted();
    }

    /// Withdraws the values: no launch fetches them.
    pub(crate) fn withdraw(&mut self) {
        self.set_number(self.counter.number_before(SLOTS as usize));
    }

    /// Whether the device has fetched all values, if nothing is in flight.
    pub(crate) fn is_in_step(&self) -> bool {
        let mut counter = self.counter;
        counter.look(self.count());
        counter.in_flight() == 0
    }

    /// Prefetches the next slot.
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
        // Nothing is in flight now.
        self.counter.look(self.count());
        match self.counter.in_flight() {
            0 => Ok(()),
            _ => {
                let (given, fetched) = self.counter.given_and_fetched();
                Err(StepError::ParametersOutOfStep { given, fetched })
            }
        }
    }

    fn has_capacity(&mut self) -> bool {
        self.counter.look(self.count());
        self.counter.has_capacity(SLOTS as usize)
    }

    /// Number of fetches by the device.
    fn count(&self) -> u32 {
        // SAFETY: the word is the first of the memory, which lives as long as `self`, and both
        // sides access it only atomically.
        unsafe { AtomicU32::from_ptr(self.words) }.load(Ordering::Acquire)
    }

    fn set_number(&mut self, number: u32) {
        // SAFETY: the word is in the memory, and only the host writes it.
        unsafe { AtomicU32::from_ptr(self.slot()) }.store(number, Ordering::Release);
    }

    /// The next slot.
    fn slot(&self) -> *mut u32 {
        let at = HEADER_WORDS as usize + self.counter.slot(SLOTS as usize) * self.slot_words;
        self.words.wrapping_add(at)
    }
}
