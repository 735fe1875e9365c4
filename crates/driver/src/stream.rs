//! Streams.
//!
//! Streams are non-blocking: they never synchronize with the legacy default stream.
//!
//! Work that any thread enqueues on a capturing stream becomes part of the capture. Safe functions
//! that enqueue or wait therefore hold an [`OutsideCapture`] during the call.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use retrograph_driver_sys::{
    CU_STREAM_NON_BLOCKING, CUdeviceptr, CUlaunchConfig, CUresult, CUstream,
};

use crate::call::CallError;
use crate::context::Context;
use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::hot_path::{PreparedCalls, prefetch};
use crate::launch::KernelLaunch;
use crate::locks::Hold;
use crate::owner::Owner;

/// A non-blocking stream. Clones share it, and any thread may enqueue work.
#[derive(Clone)]
pub struct Stream {
    inner: Arc<Inner>,
}

/// In a separate cache line from the reference count; see [`crate::hot_path`].
#[repr(align(64))]
struct Inner {
    context: Context,
    raw: CUstream,
    retired: AtomicBool,
    /// The owner of a stream of another library; `None` for a stream that is destroyed here.
    owner: Option<Owner>,
}

/// A stream that does not capture. While this lives, no stream of its context begins or joins a
/// capture, on any thread.
#[must_use = "the stream may capture again when this is dropped"]
pub struct OutsideCapture<'a> {
    stream: &'a Stream,
    _hold: Hold<'a>,
}

impl std::ops::Deref for OutsideCapture<'_> {
    type Target = Stream;

    fn deref(&self) -> &Stream {
        self.stream
    }
}

impl std::fmt::Debug for OutsideCapture<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OutsideCapture({:?})", self.stream)
    }
}

impl Stream {
    /// Creates a stream.
    ///
    /// # Errors
    /// [`Error::RefusedDuringCapture`], or a failed driver call.
    pub fn new(context: &Context) -> Result<Self> {
        context.bind_outside_capture("creating a stream")?;
        let mut raw = CUstream::NULL;
        // SAFETY: the context is current, and the out pointer is valid.
        unsafe { call!(context, cuStreamCreate(&mut raw, CU_STREAM_NON_BLOCKING)) }?;
        Ok(Self::with_owner(context, raw, None))
    }

    /// Wraps the stream of another library, which `owner` keeps alive; it is not destroyed here.
    /// The legacy default stream cannot be captured: use another stream in that library.
    ///
    /// # Safety
    /// `raw` must be a valid stream of `context` until `owner` is dropped.
    pub unsafe fn from_raw(context: &Context, raw: CUstream, owner: Owner) -> Self {
        Self::with_owner(context, raw, Some(owner))
    }

    fn with_owner(context: &Context, raw: CUstream, owner: Option<Owner>) -> Self {
        let retired = AtomicBool::new(false);
        let inner = Inner { context: context.clone(), raw, retired, owner };
        Self { inner: Arc::new(inner) }
    }

    /// The context.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// The driver's handle.
    pub fn raw(&self) -> CUstream {
        self.inner.raw
    }

    /// Waits until all work enqueued so far has finished.
    ///
    /// # Errors
    /// The fault of earlier work, [`Error::RefusedDuringCapture`] or [`Error::StreamRetired`].
    pub fn synchronize(&self) -> Result<()> {
        let _outside = self.outside_capture("waiting for a stream")?;
        // SAFETY: the stream lives.
        unsafe { call!(self.context(), cuStreamSynchronize(self.raw())) }
    }

    /// Whether all work enqueued so far has finished.
    ///
    /// # Errors
    /// As [`Stream::synchronize`].
    pub fn query(&self) -> Result<bool> {
        let _outside = self.outside_capture("querying a stream")?;
        // SAFETY: the stream lives.
        match unsafe { (self.context().table().cuStreamQuery)(self.raw()) } {
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            code => self.context().check("cuStreamQuery", code).map(|()| true),
        }
    }

    /// Enqueues a kernel launch. In a capture, use [`Capturing::launch`](crate::Capturing::launch),
    /// which keeps the owners of the launch.
    ///
    /// # Safety
    /// The function must have no undefined behavior with these arguments and this geometry:
    /// addresses must point to live, large enough buffers until the work has finished, and no other
    /// work in flight may conflict on them. In a capture this applies to every replay.
    ///
    /// # Errors
    /// If the arguments do not match the function's parameters, or the driver fails.
    pub unsafe fn launch(&self, launch: &KernelLaunch<'_>) -> Result<()> {
        self.context().same(launch.function.context(), "the function")?;
        launch.check()?;
        self.bind_to_enqueue()?;
        let ([x, y, z], [bx, by, bz]) = (launch.geometry.grid, launch.geometry.block);
        let shared = launch.geometry.shared_bytes;
        let mut arguments = launch.arguments.pointers();
        let (function, pointers) = (launch.function.raw(), arguments.as_mut_ptr());
        let (stream, extra) = (self.raw(), std::ptr::null_mut());
        if !launch.attributes.is_empty() {
            let mut attributes = launch.attributes.raw();
            let config = CUlaunchConfig {
                gridDimX: x,
                gridDimY: y,
                gridDimZ: z,
                blockDimX: bx,
                blockDimY: by,
                blockDimZ: bz,
                sharedMemBytes: shared,
                hStream: stream,
                attrs: attributes.as_mut_ptr(),
                numAttrs: attributes.len() as u32,
            };
            // SAFETY: as below, and the attributes outlive the call.
            return unsafe {
                call!(self.context(), cuLaunchKernelEx(&config, function, pointers, extra))
            };
        }
        // SAFETY: the arguments were checked against the parameters if these are known, they
        // outlive the call, and the caller upholds the rest.
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
    /// Both ranges must be valid and unused by other work until the copy has finished; in a
    /// capture, in every replay. Pageable host memory may also be read before this returns.
    ///
    /// # Errors
    /// If the driver fails.
    pub unsafe fn memcpy_htod(
        &self,
        target: CUdeviceptr,
        source: *const u8,
        bytes: usize,
    ) -> Result<()> {
        self.bind_to_enqueue()?;
        let (source, stream) = (source.cast(), self.raw());
        // SAFETY: the caller vouches for the ranges.
        unsafe { call!(self.context(), cuMemcpyHtoDAsync_v2(target, source, bytes, stream)) }
    }

    /// Enqueues a copy from device to host.
    ///
    /// # Safety
    /// As [`Stream::memcpy_htod`].
    ///
    /// # Errors
    /// If the driver fails.
    pub unsafe fn memcpy_dtoh(
        &self,
        target: *mut u8,
        source: CUdeviceptr,
        bytes: usize,
    ) -> Result<()> {
        self.bind_to_enqueue()?;
        let (target, stream) = (target.cast(), self.raw());
        // SAFETY: the caller vouches for the ranges.
        unsafe { call!(self.context(), cuMemcpyDtoHAsync_v2(target, source, bytes, stream)) }
    }

    /// Enqueues a copy within the device.
    ///
    /// # Safety
    /// As [`Stream::memcpy_htod`]; the ranges must not overlap.
    ///
    /// # Errors
    /// If the driver fails.
    pub unsafe fn memcpy_dtod(
        &self,
        target: CUdeviceptr,
        source: CUdeviceptr,
        bytes: usize,
    ) -> Result<()> {
        self.bind_to_enqueue()?;
        let stream = self.raw();
        // SAFETY: the caller vouches for the ranges.
        unsafe { call!(self.context(), cuMemcpyDtoDAsync_v2(target, source, bytes, stream)) }
    }

    /// Enqueues a fill of `words` 32-bit words with `pattern`.
    ///
    /// # Safety
    /// As [`Stream::memcpy_htod`]; the address must be a multiple of 4.
    ///
    /// # Errors
    /// If the driver fails.
    pub unsafe fn memset_d32(&self, target: CUdeviceptr, pattern: u32, words: usize) -> Result<()> {
        self.bind_to_enqueue()?;
        let stream = self.raw();
        // SAFETY: the caller vouches for the range.
        unsafe { call!(self.context(), cuMemsetD32Async(target, pattern, words, stream)) }
    }

    /// Waits for all work on the stream, in the action of a [`Context::release`], which is retried
    /// if this fails. Does not break a capture that was begun outside of this crate.
    ///
    /// # Errors
    /// If the stream captures, or the driver fails.
    pub fn wait_to_release(&self, driver: &Driver) -> Result<(), CallError> {
        let (code, captures) = self.query_capture();
        driver.check("cuStreamIsCapturing", code)?;
        if captures {
            let code = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
            return driver.check("cuStreamSynchronize", code);
        }
        // SAFETY: the stream lives.
        unsafe { call!(driver, cuStreamSynchronize(self.raw())) }
    }

    /// Fails if the stream is retired.
    pub(crate) fn usable(&self) -> Result<()> {
        if self.inner.retired.load(Ordering::Acquire) { Err(Error::StreamRetired) } else { Ok(()) }
    }

    /// Prefetches the fields of stream and context that the next launch reads.
    pub fn prefetch(&self) {
        prefetch(std::ptr::from_ref::<Inner>(&self.inner), size_of::<Inner>());
        prefetch(self.context().hot_path(), size_of::<PreparedCalls>());
    }

    /// Marks the stream as unusable.
    pub(crate) fn retire(&self) {
        self.inner.retired.store(true, Ordering::Release);
    }

    /// Makes the context current to enqueue work. Required before and after a library enqueues work
    /// on this stream: the library may have made another context current, or broken a capture.
    ///
    /// # Errors
    /// [`Error::StreamRetired`], [`Error::ContextLost`], or [`Error::CaptureLost`] if this thread's
    /// capture is lost, since the driver would then run the work at once.
    pub fn bind_to_enqueue(&self) -> Result<()> {
        self.usable()?;
        self.context().bind()?;
        self.context().require_active_capture()
    }

    /// Makes the context current and excludes captures, to wait or to enqueue work that must not
    /// become part of a capture. Costs a driver call only while a thread captures in the context.
    /// Until it is dropped, captures by this thread are refused with [`Error::CaptureExcluded`].
    ///
    /// # Errors
    /// [`Error::RefusedDuringCapture`] with `operation` if any thread captures the stream, or this
    /// thread captures; [`Error::StreamRetired`], or [`Error::ContextLost`].
    pub fn outside_capture(&self, operation: &'static str) -> Result<OutsideCapture<'_>> {
        self.usable()?;
        self.context().bind_outside_capture(operation)?;
        let hold = self.context().releases().hold_in_turn();
        if self.context().releases().capturing() && self.captures()? {
            return Err(Error::RefusedDuringCapture { operation });
        }
        Ok(OutsideCapture { stream: self, _hold: hold })
    }

    /// Fails as [`Stream::outside_capture`], to refuse a call before it begins. The stream may
    /// capture afterwards.
    ///
    /// # Errors
    /// As [`Stream::outside_capture`].
    pub fn require_outside_capture(&self, operation: &'static str) -> Result<()> {
        self.outside_capture(operation).map(drop)
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stream({:?} in {:?})", self.raw(), self.context())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.owner.is_some() {
            return;
        }
        let raw = self.raw;
        // SAFETY: no clone is left. Enqueued work still runs to completion.
        self.context.release(move |driver| unsafe { call!(driver, cuStreamDestroy_v2(raw)) });
    }
}
