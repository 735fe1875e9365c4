//! Events: points in a stream, for ordering and for measuring time.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use retrograph_driver_sys::{CU_EVENT_DEFAULT, CU_EVENT_DISABLE_TIMING, CUevent, CUresult};

use crate::context::Context;
use crate::error::{Error, Result};
use crate::stream::Stream;

/// A point in a stream, once recorded there. Clones share it.
#[derive(Clone)]
pub struct Event {
    inner: Arc<Inner>,
}

struct Inner {
    context: Context,
    raw: CUevent,
    /// Whether it was last recorded on a capturing stream. Locked while the event is recorded or
    /// queried, or a stream waits for it, after the capture lock.
    captured: Mutex<bool>,
}

impl Event {
    /// Creates an event that measures device time.
    ///
    /// # Errors
    /// [`crate::Error::RefusedDuringCapture`], or a failed driver call.
    pub fn new(context: &Context) -> Result<Self> {
        Self::with_flags(context, CU_EVENT_DEFAULT)
    }

    /// Creates an event for ordering only, which is cheaper.
    ///
    /// # Errors
    /// As [`Event::new`].
    pub fn untimed(context: &Context) -> Result<Self> {
        Self::with_flags(context, CU_EVENT_DISABLE_TIMING)
    }

    fn with_flags(context: &Context, flags: u32) -> Result<Self> {
        context.bind_outside_capture("creating an event")?;
        let mut raw = CUevent::NULL;
        // SAFETY: the context is current, and the out pointer is valid.
        unsafe { call!(context, cuEventCreate(&mut raw, flags)) }?;
        let inner = Inner { context: context.clone(), raw, captured: Mutex::new(false) };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The context.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// The driver's handle.
    pub fn raw(&self) -> CUevent {
        self.inner.raw
    }

    /// Records the event: it completes when all work enqueued on `stream` so far has finished. In a
    /// capture it is a point in the graph that other streams can wait for.
    ///
    /// # Errors
    /// If the stream belongs to another context, or the driver fails.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        self.context().same(stream.context(), "the stream")?;
        stream.bind_to_enqueue()?;
        let _hold = self.context().releases().hold_in_turn();
        let captures = self.context().releases().capturing() && stream.captures()?;
        let mut captured = self.inner.captured.lock();
        *captured |= captures;
        // SAFETY: event and stream live.
        unsafe { call!(self.context(), cuEventRecord(self.raw(), stream.raw())) }?;
        *captured = captures;
        Ok(())
    }

    /// Makes the context current, unless this thread captures or the event is part of a capture.
    /// While the returned lock is held, no other thread records the event.
    fn bind_outside_capture(&self, operation: &'static str) -> Result<MutexGuard<'_, bool>> {
        self.context().bind_outside_capture(operation)?;
        let captured = self.inner.captured.lock();
        if *captured && self.context().releases().capturing() {
            return Err(Error::RefusedDuringCapture { operation });
        }
        Ok(captured)
    }

    /// Records the event, or waits for the stream if recording fails, so that later waits for the
    /// event are correct in both cases.
    ///
    /// # Errors
    /// If that wait fails too, as in a lost context.
    pub(crate) fn mark(&self, stream: &Stream) -> Result<()> {
        self.record(stream).or_else(|error| {
            tracing::warn!(%error, "no event was recorded; waiting for the stream instead");
            stream.synchronize()
        })
    }

    /// Whether the work before the event has finished; true if it was never recorded.
    ///
    /// # Errors
    /// The fault of earlier work, or [`crate::Error::RefusedDuringCapture`].
    pub fn is_complete(&self) -> Result<bool> {
        let _unrecorded = self.bind_outside_capture("querying an event")?;
        // SAFETY: the event lives.
        match unsafe { (self.context().table().cuEventQuery)(self.raw()) } {
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            code => self.context().check("cuEventQuery", code).map(|()| true),
        }
    }

    /// Waits until the work before the event has finished. If another thread records the event in
    /// a capture as the wait begins, the driver can refuse the wait and break that capture.
    ///
    /// # Errors
    /// As [`Event::is_complete`].
    pub fn synchronize(&self) -> Result<()> {
        // Not locked during the wait: other threads may record the event again meanwhile.
        drop(self.bind_outside_capture("waiting for an event")?);
        // SAFETY: the event lives.
        unsafe { call!(self.context(), cuEventSynchronize(self.raw())) }
    }

    /// Milliseconds on the device from `earlier` to this event. Both must be complete.
    ///
    /// # Errors
    /// If either event is untimed, was not recorded or is not complete.
    pub fn elapsed_ms(&self, earlier: &Self) -> Result<f32> {
        self.context().same(earlier.context(), "the event")?;
        self.context().bind_outside_capture("measuring the time between events")?;
        let mut milliseconds = 0.0;
        // SAFETY: both events live, and the out pointer is valid.
        unsafe {
            call!(self.context(), cuEventElapsedTime(&mut milliseconds, earlier.raw(), self.raw()))
        }?;
        Ok(milliseconds)
    }
}

impl Stream {
    /// Makes work enqueued from now on wait for `event`. The stream joins the capture in which the
    /// event was recorded, if any.
    ///
    /// # Errors
    /// If the event belongs to another context, or the driver fails; [`Error::CaptureExcluded`].
    pub fn wait(&self, event: &Event) -> Result<()> {
        self.context().same(event.context(), "the event")?;
        self.bind_to_enqueue()?;
        let releases = self.context().releases();
        {
            let _hold = releases.hold_in_turn();
            let captured = event.inner.captured.lock();
            if !*captured || !releases.capturing() {
                return self.enqueue_wait(event);
            }
        }
        if releases.is_held_here() {
            return Err(Error::CaptureExcluded { operation: "joining a capture" });
        }
        // Excludes other threads that enqueue uncaptured work on this stream.
        releases.join_capture(|| self.enqueue_wait(event))
    }

    fn enqueue_wait(&self, event: &Event) -> Result<()> {
        // SAFETY: stream and event live; the driver keeps what it needs of the event.
        unsafe { call!(self.context(), cuStreamWaitEvent(self.raw(), event.raw(), 0)) }
    }
}

impl std::fmt::Debug for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Event({:?})", self.raw())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let raw = self.raw;
        // SAFETY: nobody else has the event; the driver keeps what pending waits need.
        self.context.release(move |driver| unsafe { call!(driver, cuEventDestroy_v2(raw)) });
    }
}
