//! What belongs to a host thread: its current context and its capture mode.

use std::sync::atomic::{AtomicU64, Ordering};

use retrograph_driver_sys::{CUcontext, CUresult, CUstreamCaptureMode};

use super::State;
use crate::refusal::{Refusal, Rule, refuse};

/// What a world knows of a host thread.
pub(crate) struct Thread {
    /// Current contexts, the last one on top. Null contexts may be pushed.
    pub(crate) contexts: Vec<CUcontext>,
    pub(crate) capture_mode: CUstreamCaptureMode,
}

impl Default for Thread {
    fn default() -> Self {
        let capture_mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
        Self { contexts: Vec::new(), capture_mode }
    }
}

/// A number for the calling thread that no other thread of the process ever has.
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

    /// The context that is current on the calling thread, or null.
    pub(crate) fn current_context(&mut self) -> CUcontext {
        self.thread().contexts.last().copied().unwrap_or(CUcontext::NULL)
    }

    /// Refuses calls before the driver was initialized.
    pub(crate) fn ready(&self) -> Result<(), Refusal> {
        match self.initialized {
            true => Ok(()),
            false => Err(refuse(CUresult::CUDA_ERROR_NOT_INITIALIZED, Rule::Uninitialized)),
        }
    }

    /// The device of the current context, whether or not the context is lost.
    pub(crate) fn current_even_lost(&mut self) -> Result<usize, Refusal> {
        self.ready()?;
        let context = self.current_context();
        if context.is_null() {
            return Err(refuse(CUresult::CUDA_ERROR_INVALID_CONTEXT, Rule::ContextNone));
        }
        let found = self.devices.iter().position(|device| device.context == Some(context));
        found.ok_or(refuse(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED, Rule::ContextDestroyed))
    }

    /// The device of the current context. Once the context is lost, the code by which it was lost.
    pub(crate) fn current(&mut self) -> Result<usize, Refusal> {
        let device = self.current_even_lost()?;
        self.sound(device)
    }

    /// Refuses a current context that is not sound. None need be current.
    pub(crate) fn refuse_lost(&mut self) -> Result<(), Refusal> {
        match self.current_context().is_null() {
            true => Ok(()),
            false => self.current().map(|_| ()),
        }
    }

    /// Fails with the code by which the context of a device was lost.
    pub(crate) fn alive(&self, device: usize) -> Result<(), Refusal> {
        self.devices[device].lost.map_or(Ok(()), |code| Err(refuse(code, Rule::Sticky)))
    }

    /// The device of an object, which is lost with its context.
    pub(crate) fn sound(&self, device: usize) -> Result<usize, Refusal> {
        self.alive(device).map(|()| device)
    }
}
