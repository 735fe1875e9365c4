//! Memory for the transients of several programs that never run at the same time.
//!
//! Transients hold nothing between steps, so that programs which take turns can use the same bytes.
//! Which programs take turns is known to a [`super::ProgramCache`], which lends one program at a
//! time. What is left to be kept in order are their streams.

use std::sync::Arc;

use parking_lot::Mutex;
use retrograph_driver::{DeviceBuffer, Owner, Result, Stream};

use super::error::BuildError;
use super::last::LastUse;

/// A share in an arena.
#[derive(Clone)]
pub(super) struct Share {
    buffer: DeviceBuffer<u32>,
    /// The last step of any program.
    last: Arc<Mutex<LastUse>>,
}

impl Share {
    /// The first share in an arena of at least `bytes`.
    pub(super) fn new(stream: &Stream, bytes: usize) -> Result<Self> {
        let buffer = DeviceBuffer::uninit(stream.context(), bytes.div_ceil(4))?;
        Ok(Self { buffer, last: Arc::default() })
    }

    pub(super) fn bytes(&self) -> usize {
        self.buffer.bytes()
    }

    pub(super) fn address(&self) -> u64 {
        self.buffer.address()
    }

    /// What keeps the memory.
    pub(super) fn owner(&self) -> Owner {
        self.buffer.owner()
    }

    /// Makes `stream` wait for the last step in the arena, which may have been on another one.
    pub(super) fn after_last_step(&self, stream: &Stream) -> Result<()> {
        self.last.lock().come_behind(stream)
    }

    /// Notes that a step was enqueued on `stream`.
    pub(super) fn used(&self, stream: &Stream) {
        self.last.lock().on(stream);
    }
}

/// What a program may take that shares an arena.
pub(super) struct Sharing<'a> {
    /// The arena that is there.
    pub(super) arena: Option<&'a Share>,
    /// The most bytes of the program, with its arena.
    pub(super) budget: usize,
}

impl Sharing<'_> {
    /// The arena that is there, if the budget allows it beside `fixed` bytes of the program's own.
    fn usable(&self, fixed: usize) -> Option<&Share> {
        self.arena.filter(|share| share.bytes().saturating_add(fixed) <= self.budget)
    }

    /// Plans for the bytes that there are: those that are free, or those of the arena, but not more
    /// than the budget.
    pub(super) fn within<P>(
        &self,
        free: usize,
        fixed: usize,
        plan: impl FnOnce(usize) -> Result<P, BuildError>,
    ) -> Result<P, BuildError> {
        let capacity = self.usable(fixed).map_or(free, |share| share.bytes().max(free));
        let allowed = self.budget.saturating_sub(fixed);
        plan(capacity.min(allowed)).map_err(|error| match error {
            BuildError::OutOfMemory { needed, .. } if allowed < capacity => {
                BuildError::OverBudget { needed: needed + fixed, budget: self.budget }
            }
            other => other,
        })
    }

    /// A share in the arena that is there, or in a new one when it is too small.
    pub(super) fn share(&self, stream: &Stream, bytes: usize, fixed: usize) -> Result<Share> {
        match self.usable(fixed).filter(|share| share.bytes() >= bytes) {
            Some(share) => Ok(share.clone()),
            None => Share::new(stream, bytes),
        }
    }
}
