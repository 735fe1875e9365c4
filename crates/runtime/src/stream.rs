//! Streams: work in order.
//!
//! Every stream is non-blocking: it has nothing to do with the legacy stream, with which work of
//! libraries would otherwise be ordered by accident, or not ordered at all.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use retrograph_driver_sys::{
    CU_STREAM_NON_BLOCKING, CUdeviceptr, CUresult, CUstream, CUstreamCaptureStatus,
};

use crate::capture::window;
use crate::context::Context;
use crate::driver::Driver;
use crate::error::{CallError, Error, Result};
use crate::event::Event;
use crate::frequent::{Frequent, prefetch};
use crate::launch::KernelLaunch;

pub(crate) const NON_BLOCKING: u32 = CU_STREAM_NON_BLOCKING;

/// A non-blocking stream. Clones share it, and any thread may enqueue.
#[derive(Clone)]
pub struct Stream {
    inner: Arc<Inner>,
}

/// In a line of the processor's cache that is not written when clones are made, see
/// [`crate::frequent`].
#[repr(align(64))]
struct Inner {
    context: Context,
    raw: CUstream,
    retired: AtomicBool,
}

impl Stream {
    /// Makes a stream.
    ///
    /// # Errors
    /// [`Error::RefusedDuringCapture`], or a failed driver call.
    pub fn new(context: &Context) -> Result<Self> {
        context.bind_outside_capture("making a stream")?;
        let mut raw = CUstream::NULL;
        // SAFETY: the context is current, and the place is valid.
        unsafe { call!(context, cuStreamCreate(&mut raw, NON_BLOCKING)) }?;
        let inner = Inner { context: context.clone(), raw, retired: AtomicBool::new(false) };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The context.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// The driver's handle.
    pub fn raw(&self) -> CUstream {
        self.inner.raw
    }

    /// Waits until everything enqueued so far has run.
    ///
    /// # Errors
    /// The fault of earlier work, [`Error::RefusedDuringCapture`] or [`Error::StreamRetired`].
    pub fn synchronize(&self) -> Result<()> {
        self.bind_outside_capture("waiting for a stream")?;
        // SAFETY: the stream lives.
        unsafe { call!(self.context(), cuStreamSynchronize(self.raw())) }
    }

    /// Whether everything enqueued so far has run.
    ///
    /// # Errors
    /// As [`Stream::synchronize`].
    pub fn query(&self) -> Result<bool> {
        self.bind_outside_capture("asking a stream")?;
        // SAFETY: the stream lives.
        match unsafe { (self.context().table().cuStreamQuery)(self.raw()) } {
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            code => self.context().check("cuStreamQuery", code).map(|()| true),
        }
    }

    /// Makes what is enqueued from now on wait for `event`.
    ///
    /// # Errors
    /// When the event is of another context, or the driver fails.
    pub fn wait(&self, event: &Event) -> Result<()> {
        self.context().same(event.context(), "the event")?;
        self.bind_to_enqueue()?;
        // SAFETY: stream and event live; the driver keeps what it needs of the event.
        unsafe { call!(self.context(), cuStreamWaitEvent(self.raw(), event.raw(), 0)) }
    }

    /// Enqueues a launch.
    ///
    /// # Safety
    /// The function must do nothing undefined with these arguments and this geometry: addresses
    /// must be those of live buffers that are large enough, until the work has run, and no other
    /// work in flight may conflict on them. In a capture this holds for every replay.
    ///
    /// # Errors
    /// When the arguments do not fit the function's parameters, or the driver fails.
    pub unsafe fn launch(&self, launch: &KernelLaunch<'_>) -> Result<()> {
        self.context().same(launch.function.context(), "the function")?;
        launch.check()?;
        self.bind_to_enqueue()?;
        let ([x, y, z], [bx, by, bz]) = (launch.geometry.grid, launch.geometry.block);
        let shared = launch.geometry.shared_bytes;
        let mut arguments = launch.arguments.pointers();
        let (function, pointers) = (launch.function.raw(), arguments.as_mut_ptr());
        let (stream, extra) = (self.raw(), std::ptr::null_mut());
        // SAFETY: the arguments were checked against the parameters where the driver tells them,
        // they outlive the call, and the caller promises the rest.
        unsafe {
            call!(
                self.context(),
                cuLaunchKernel(function, x, y, z, bx, by, bz, shared, stream, pointers, extra)
            )
        }
    }

    /// Enqueues a copy from host to device.
    ///
    /// # Safety
    /// Both ranges must be valid and unused by others until the copy has run; in a capture, for
    /// every replay. Memory that is not pinned may also be read before this returns.
    ///
    /// # Errors
    /// When the driver fails.
    pub unsafe fn copy_to_device(
        &self,
        target: CUdeviceptr,
        source: *const u8,
        bytes: usize,
    ) -> Result<()> {
        self.bind_to_enqueue()?;
        let (source, stream) = (source.cast(), self.raw());
        // SAFETY: the caller promises valid ranges.
        unsafe { call!(self.context(), cuMemcpyHtoDAsync_v2(target, source, bytes, stream)) }
    }

    /// Enqueues a copy from device to host.
    ///
    /// # Safety
    /// As [`Stream::copy_to_device`].
    ///
    /// # Errors
    /// When the driver fails.
    pub unsafe fn copy_to_host(
        &self,
        target: *mut u8,
        source: CUdeviceptr,
        bytes: usize,
    ) -> Result<()> {
        self.bind_to_enqueue()?;
        let (target, stream) = (target.cast(), self.raw());
        // SAFETY: the caller promises valid ranges.
        unsafe { call!(self.context(), cuMemcpyDtoHAsync_v2(target, source, bytes, stream)) }
    }

    /// Enqueues a copy within the device.
    ///
    /// # Safety
    /// As [`Stream::copy_to_device`]; the ranges must not overlap.
    ///
    /// # Errors
    /// When the driver fails.
    pub unsafe fn copy_on_device(
        &self,
        target: CUdeviceptr,
        source: CUdeviceptr,
        bytes: usize,
    ) -> Result<()> {
        self.bind_to_enqueue()?;
        let stream = self.raw();
        // SAFETY: the caller promises valid ranges.
        unsafe { call!(self.context(), cuMemcpyDtoDAsync_v2(target, source, bytes, stream)) }
    }

    /// Enqueues filling `words` 32-bit words with `pattern`.
    ///
    /// # Safety
    /// As [`Stream::copy_to_device`]; the address must be a multiple of 4.
    ///
    /// # Errors
    /// When the driver fails.
    pub unsafe fn fill_u32(&self, target: CUdeviceptr, pattern: u32, words: usize) -> Result<()> {
        self.bind_to_enqueue()?;
        let stream = self.raw();
        // SAFETY: the caller promises a valid range.
        unsafe { call!(self.context(), cuMemsetD32Async(target, pattern, words, stream)) }
    }

    /// Whether a capture is in progress on it, on whichever thread.
    pub(crate) fn is_capturing(&self) -> Result<bool> {
        self.context().bind()?;
        let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: the stream lives, and the place is valid.
        unsafe { call!(self.context(), cuStreamIsCapturing(self.raw(), &mut status)) }?;
        Ok(status == CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE)
    }

    /// Waits for all work on the stream, for a release that is tried again when this fails. A
    /// capture that others have begun by themselves is left alone.
    pub(crate) fn wait_to_release(&self, driver: &Driver) -> Result<(), CallError> {
        let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: the stream lives, and the place is valid.
        unsafe { call!(driver, cuStreamIsCapturing(self.raw(), &mut status)) }?;
        if status == CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE {
            let code = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
            return driver.check("cuStreamSynchronize", code);
        }
        // SAFETY: the stream lives.
        unsafe { call!(driver, cuStreamSynchronize(self.raw())) }
    }

    /// Fails for a stream that a capture left unusable.
    pub(crate) fn usable(&self) -> Result<()> {
        if self.inner.retired.load(Ordering::Acquire) { Err(Error::StreamRetired) } else { Ok(()) }
    }

    /// Asks the processor for what the next step needs of the stream and of its context.
    pub(crate) fn prefetch(&self) {
        prefetch(std::ptr::from_ref::<Inner>(&self.inner), size_of::<Inner>());
        prefetch(self.context().frequent(), size_of::<Frequent>());
    }

    pub(crate) fn retire(&self) {
        self.inner.retired.store(true, Ordering::Release);
    }

    /// The one way to the driver for everything that is enqueued. It is closed while this thread
    /// has a capture that was lost, since the driver would run the work at once.
    pub(crate) fn bind_to_enqueue(&self) -> Result<()> {
        self.usable()?;
        self.context().bind()?;
        window::require_active(self.context())
    }

    pub(crate) fn bind_outside_capture(&self, operation: &'static str) -> Result<()> {
        self.usable()?;
        self.context().bind_outside_capture(operation)
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stream({:?} in {:?})", self.raw(), self.context())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let raw = self.raw;
        // SAFETY: no clone is left. Work that is still enqueued runs to its end.
        self.context.release(move |driver| unsafe { call!(driver, cuStreamDestroy_v2(raw)) });
    }
}
