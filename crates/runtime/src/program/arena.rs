//! An arena shared by the transients of several programs that never run at the same time.
//!
//! Transients hold no data between steps, so programs that run one at a time can share memory. A
//! [`super::ProgramCache`] lends one program at a time; the arena orders their streams.

use std::sync::Arc;

use parking_lot::Mutex;
use retrograph_driver::{DeviceBuffer, OutsideCapture, Owner, Result, Stream};

use super::error::BuildError;
use super::last::LastUse;

/// A share in an arena.
#[derive(Clone)]
pub(super) struct Share {
    buffer: DeviceBuffer<u32>,
    /// The last step of any sharing program.
    last: Arc<Mutex<LastUse>>,
}

impl Share {
    /// Allocates an arena of at least `bytes`.
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

    /// Keeps the memory alive.
    pub(super) fn owner(&self) -> Owner {
        self.buffer.owner()
    }

    /// Makes `stream` wait for the last step in the arena, possibly on another stream.
    pub(super) fn after_last_step(&self, stream: &OutsideCapture<'_>) -> Result<()> {
        self.last.lock().order_after(stream)
    }

    /// Notes that a step was enqueued on `stream`.
    pub(super) fn used(&self, stream: &Stream) {
        self.last.lock().on(stream);
    }
}

/// The limits of a program that shares an arena.
pub(super) struct Sharing<'a> {
    /// The existing arena.
    pub(super) arena: Option<&'a Share>,
    /// Maximum bytes of the program including its arena.
    pub(super) budget: usize,
}

impl Sharing<'_> {
    /// Returns the existing arena, if it fits in the budget with `fixed` further bytes of the
    /// program.
    fn usable(&self, fixed: usize) -> Option<&Share> {
        self.arena.filter(|share| share.bytes().saturating_add(fixed) <= self.budget)
    }

    /// Plans for the available bytes: free memory or the arena, whichever is larger, within the
    /// budget.
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

    /// A share in the existing arena, or in a new one if that is too small.
    pub(super) fn share(&self, stream: &Stream, bytes: usize, fixed: usize) -> Result<Share> {
        match self.usable(fixed).filter(|share| share.bytes() >= bytes) {
            Some(share) => Ok(share.clone()),
            None => Share::new(stream, bytes),
        }
    }
}
