//! Memory pools: one driver allocation, handed out in parts.
//!
//! Allocating from the driver is slow, can fail, and breaks a capture. A pool is allocated once; it
//! hands out ordinary [`DeviceBuffer`]s and takes them back without driver calls.
//!
//! ```
//! # #[cfg(feature = "sim")] {
//! use retrograph_driver::{
//!     CaptureMode, Context, DeviceIndex, Driver, Error, MemoryPool, Stream,
//! };
//!
//! let context = Context::new(&Driver::simulated(Default::default())?, DeviceIndex(0))?;
//! let stream = Stream::new(&context)?;
//! let pool = MemoryPool::new(&context, 1 << 20)?;
//! let scratch = pool.uninit::<f32>(1024)?;
//!
//! let seal = pool.seal("the captured step");
//! let graph = stream.capture(CaptureMode::ThreadLocal, |capturing| {
//!     // No thread can allocate from the pool while it is sealed.
//!     assert!(matches!(pool.uninit::<f32>(1), Err(Error::PoolSealed { .. })));
//!     capturing.keep(scratch.owner());
//!     // SAFETY: the range is in the buffer, which the graph keeps alive.
//!     unsafe { capturing.stream().memset_d32(scratch.address(), 0, 1024) }
//! })?;
//! drop(seal);
//! graph.instantiate()?.launch(&stream)?;
//! assert_eq!(scratch.download(&stream)?, [0.0; 1024]);
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # When a part is reused
//!
//! A buffer may have been used on any stream, which the pool does not know. A dropped part is
//! therefore reused only after a wait for the whole context, which covers all work enqueued before
//! the drop. The pool waits only if nothing else fits, and once for all parts dropped so far.
//!
//! A pool does not grow.

use std::ops::Range;
use std::sync::Arc;

use bytemuck::Pod;
use parking_lot::Mutex;
use retrograph_driver_sys::CUdeviceptr;

use super::NAN_PATTERN;
use super::device::DeviceBuffer;
use super::device::allocated_bytes;
use super::gaps::Gaps;
use crate::context::Context;
use crate::error::{Error, Result};

/// Alignment of parts, as of driver allocations.
const ALIGNMENT: usize = 256;

/// Device memory that is allocated once and handed out in parts. Clones share it; it is freed when
/// the pool and all of its buffers have been dropped.
#[derive(Clone, Debug)]
pub struct MemoryPool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    chunk: DeviceBuffer<u32>,
    /// Bytes of the chunk before its first aligned address.
    skipped: usize,
    state: Mutex<State>,
}

impl Shared {
    fn capacity(&self) -> usize {
        self.chunk.bytes() - self.skipped
    }
}

#[derive(Debug)]
struct State {
    gaps: Gaps,
    /// Dropped parts that enqueued work may still use, each with the number of its drop.
    waiting: Vec<(u64, Range<usize>)>,
    drops: u64,
    /// Number and name of each seal.
    seals: Vec<(u64, String)>,
    next_seal: u64,
}

impl State {
    fn require_open(&self, requested: usize) -> Result<()> {
        match self.seals.last() {
            Some((_, by)) => Err(Error::PoolSealed { requested, by: by.clone() }),
            None => Ok(()),
        }
    }
}

/// Usage of a pool, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolUse {
    /// Size of the pool.
    pub capacity: usize,
    /// Bytes of live buffers, each a multiple of 256.
    pub used: usize,
    /// Bytes of dropped buffers, reusable after a wait for the context.
    pub waiting: usize,
    /// Largest buffer that fits without a wait.
    pub largest: usize,
}

impl MemoryPool {
    /// Allocates a pool of at least `bytes` bytes.
    ///
    /// # Errors
    /// As [`DeviceBuffer::uninit`].
    pub fn new(context: &Context, bytes: usize) -> Result<Self> {
        let words = bytes.checked_next_multiple_of(ALIGNMENT).unwrap_or(bytes) / 4;
        Ok(Self::of(DeviceBuffer::uninit(context, words)?))
    }

    /// Creates a pool in existing memory, from its first multiple of 256 bytes.
    pub fn of(memory: DeviceBuffer<u32>) -> Self {
        let before = memory.address().next_multiple_of(ALIGNMENT as u64) - memory.address();
        let skipped = memory.bytes().min(before as usize);
        let gaps = Gaps::all(memory.bytes() - skipped);
        let (waiting, seals) = (Vec::new(), Vec::new());
        let state = Mutex::new(State { gaps, waiting, drops: 0, seals, next_seal: 0 });
        Self { shared: Arc::new(Shared { chunk: memory, skipped, state }) }
    }

    /// Returns the bytes that a buffer of `bytes` takes in a pool.
    pub const fn bytes_taken(bytes: usize) -> usize {
        let bytes = if bytes == 0 { 1 } else { bytes };
        bytes.saturating_add(ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT
    }

    /// Returns `len` elements of arbitrary content (NaN in debug builds).
    ///
    /// # Errors
    /// [`Error::PoolSealed`]; [`Error::PoolExhausted`]; [`Error::RefusedDuringCapture`] if this
    /// thread captures, or if a wait is needed while another thread captures; or a failed driver
    /// call.
    pub fn uninit<T: Pod>(&self, len: usize) -> Result<DeviceBuffer<T>> {
        self.filled(len, cfg!(debug_assertions).then_some(NAN_PATTERN))
    }

    /// Returns `len` elements whose bytes are zero.
    ///
    /// # Errors
    /// As [`MemoryPool::uninit`].
    pub fn zeroed<T: Pod>(&self, len: usize) -> Result<DeviceBuffer<T>> {
        self.filled(len, Some(0))
    }

    fn filled<T: Pod>(&self, len: usize, pattern: Option<u32>) -> Result<DeviceBuffer<T>> {
        let requested = allocated_bytes(len.saturating_mul(size_of::<T>()));
        let block = self.block(requested)?;
        let (address, block) = (block.address(), Arc::new(block));
        DeviceBuffer::pooled(self.context(), address, len, block, pattern)
    }

    fn block(&self, requested: usize) -> Result<Block> {
        // Checked before the capture, because this error names the seal.
        self.shared.state.lock().require_open(requested)?;
        self.context().bind_outside_capture("allocating from a memory pool")?;
        if let Some(block) = self.take(requested)? {
            return Ok(block);
        }
        self.free_dropped()?;
        self.take(requested)?.ok_or_else(|| {
            let (free, largest) = self.shared.state.lock().gaps.free();
            Error::PoolExhausted { requested, free, largest, capacity: self.shared.capacity() }
        })
    }

    /// Takes a free part, if one is large enough.
    fn take(&self, requested: usize) -> Result<Option<Block>> {
        let bytes = requested.checked_next_multiple_of(ALIGNMENT).unwrap_or(requested);
        let mut state = self.shared.state.lock();
        state.require_open(requested)?;
        let range = state.gaps.take(bytes);
        Ok(range.map(|range| Block { shared: Arc::clone(&self.shared), range }))
    }

    /// Waits for the work that may use parts dropped before this call, and frees these parts. The
    /// state is not locked during the wait, so buffers can be dropped meanwhile.
    fn free_dropped(&self) -> Result<()> {
        let so_far = self.shared.state.lock().drops;
        self.context().synchronize()?;
        let mut state = self.shared.state.lock();
        let State { gaps, waiting, .. } = &mut *state;
        waiting.retain(|(drop, range)| {
            let waits = *drop >= so_far;
            if !waits {
                gaps.give_back(range.clone());
            }
            waits
        });
        Ok(())
    }

    /// Forbids allocations on every thread until the seal is dropped; their errors name `by`. Seals
    /// nest. Buffers can be dropped meanwhile.
    pub fn seal(&self, by: impl Into<String>) -> PoolSeal {
        let mut state = self.shared.state.lock();
        let number = state.next_seal;
        state.next_seal += 1;
        state.seals.push((number, by.into()));
        PoolSeal { shared: Arc::clone(&self.shared), number }
    }

    /// Returns the name of the last seal, if the pool is sealed.
    pub fn sealed_by(&self) -> Option<String> {
        self.shared.state.lock().seals.last().map(|(_, by)| by.clone())
    }

    /// Current usage.
    pub fn usage(&self) -> PoolUse {
        let state = self.shared.state.lock();
        let ((free, largest), capacity) = (state.gaps.free(), self.shared.capacity());
        let waiting = state.waiting.iter().map(|(_, range)| range.len()).sum();
        PoolUse { capacity, used: capacity - free - waiting, waiting, largest }
    }

    /// The context.
    pub fn context(&self) -> &Context {
        self.shared.chunk.context()
    }
}

/// Forbids allocations from a [`MemoryPool`] until it is dropped.
#[must_use = "the pool is sealed for as long as this lives"]
#[derive(Debug)]
pub struct PoolSeal {
    shared: Arc<Shared>,
    number: u64,
}

impl Drop for PoolSeal {
    fn drop(&mut self) {
        self.shared.state.lock().seals.retain(|(number, _)| *number != self.number);
    }
}

/// A part of a pool in use. When dropped, it becomes reusable after the next wait.
#[derive(Debug)]
struct Block {
    shared: Arc<Shared>,
    range: Range<usize>,
}

impl Block {
    fn address(&self) -> CUdeviceptr {
        self.shared.chunk.address() + (self.shared.skipped + self.range.start) as u64
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        let number = state.drops;
        state.drops += 1;
        state.waiting.push((number, self.range.clone()));
    }
}
