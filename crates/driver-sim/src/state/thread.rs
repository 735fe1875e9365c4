//! State of a host thread: its context stack and its capture mode.

use std::sync::atomic::{AtomicU64, Ordering};

use retrograph_driver_sys::{CUcontext, CUresult, CUstreamCaptureMode};

use super::State;
use crate::refusal::{Refusal, Rule, refuse};

/// A host thread.
pub(crate) struct Thread {
    /// The context stack, the current one last. Null contexts may be pushed.
    pub(crate) contexts: Vec<CUcontext>,
    pub(crate) capture_mode: CUstreamCaptureMode,
}

impl Default for Thread {
    fn default() -> Self {
        let capture_mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
        Self { contexts: Vec::new(), capture_mode }
    }
}

/// The unique number of the calling thread.
pub(crate) fn this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    thread_local!(static THIS: u64 = NEXT.fetch_add(1, Ordering::Relaxed));
    THIS.with(|number| *number)
}

impl State {
    /// The calling thread.
    pub(crate) fn thread(&mut self) -> &mut Thread {
        self.threads.entry(this_thread()).or_default()
    }

    /// The current context of the calling thread, or null.
    pub(crate) fn current_context(&mut self) -> CUcontext {
        self.thread().contexts.last().copied().unwrap_or(CUcontext::NULL)
    }

    /// Fails with `CUDA_ERROR_NOT_INITIALIZED` before `cuInit`.
    pub(crate) fn check_initialized(&self) -> Result<(), Refusal> {
        match self.initialized {
            true => Ok(()),
            false => Err(refuse(CUresult::CUDA_ERROR_NOT_INITIALIZED, Rule::Uninitialized)),
        }
    }

    /// The device of the current context, even if the context is lost.
    pub(crate) fn current_even_lost(&mut self) -> Result<usize, Refusal> {
        self.check_initialized()?;
        let context = self.current_context();
        if context.is_null() {
            return Err(refuse(CUresult::CUDA_ERROR_INVALID_CONTEXT, Rule::ContextNone));
        }
        let found = self.devices.iter().position(|device| device.context == Some(context));
        found.ok_or(refuse(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED, Rule::ContextDestroyed))
    }

    /// The device of the current context. Fails with the sticky code if the context is lost.
    pub(crate) fn current(&mut self) -> Result<usize, Refusal> {
        let device = self.current_even_lost()?;
        self.live_device(device)
    }

    /// Fails if a context is current and lost or destroyed.
    pub(crate) fn refuse_lost(&mut self) -> Result<(), Refusal> {
        match self.current_context().is_null() {
            true => Ok(()),
            false => self.current().map(|_| ()),
        }
    }

    /// Fails with the sticky code if the context of a device is lost.
    pub(crate) fn check_alive(&self, device: usize) -> Result<(), Refusal> {
        self.devices[device].lost.map_or(Ok(()), |code| Err(refuse(code, Rule::Sticky)))
    }

    /// `device`. Fails with the sticky code if its context is lost.
    pub(crate) fn live_device(&self, device: usize) -> Result<usize, Refusal> {
        self.check_alive(device).map(|()| device)
    }
}
