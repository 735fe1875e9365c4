//! Contexts: the retained primary context of a device, or a borrowed one, and its loss.
//!
//! [`Context::new`] retains the device's primary context, so libraries that use the CUDA runtime
//! API share it. [`Context::from_raw`] borrows a context that another library made.
//!
//! Every entry point of this crate makes the context current on the calling thread, so threads need
//! no preparation. The current context is not cached, because another library may change it and
//! setting it again is cheap.
//!
//! # Lost contexts
//!
//! After a kernel fault (700, 719 and other sticky codes) the contexts of all devices are lost for
//! the process, and every later call returns that code. The first such error of a context is
//! recorded, and every later operation fails with [`Error::ContextLost`] and that cause without
//! calling the driver.

mod inner;

use std::fmt;
use std::sync::Arc;

use retrograph_driver_sys::{
    CUcontext, CUdevice, CUresult, CUstream, CUstreamCaptureStatus, DriverTable,
};
use retrograph_ptx::SmTarget;

use self::inner::Inner;
use crate::call::CallError;
use crate::capture::window::{self, OpenCapture};
use crate::device::{DeviceIndex, DeviceInfo};
use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::hot_path::PreparedCalls;
use crate::live::{LiveContexts, Which};
use crate::nvtx;
use crate::owner::Owner;
use crate::release::Releases;

/// A retained primary context, or a borrowed context. Clones share it.
#[derive(Clone)]
pub struct Context {
    inner: Arc<Inner>,
}

static LIVE: LiveContexts<Inner, Releases> = LiveContexts::new();

impl Context {
    /// Retains the primary context of device `index`. While a context of this device lives, the
    /// same one is returned, even if its driver was loaded separately, so all users share its
    /// captures and faults.
    ///
    /// # Errors
    /// [`Error::NoSuchDevice`], [`Error::RefusedDuringCapture`] if this thread captures and the
    /// device has no context yet, or a failed driver call.
    pub fn new(driver: &Driver, index: DeviceIndex) -> Result<Self> {
        // The first range loads the NVTX library, which takes a millisecond.
        let _range = nvtx::range(c"retrograph: open context");
        let make = |releases| Inner::primary(driver, index, releases);
        Ok(Self { inner: LIVE.find_or_make(driver, Which::Primary(index), make)? })
    }

    /// Borrows a context that somebody else made, for example by `cuCtxCreate` or
    /// `cuCtxFromGreenCtx`. It is not destroyed here: the context and all objects in it hold
    /// `owner`, and the last of them drops it. Makes the context current on this thread.
    ///
    /// The same handle gives the same context while that lives, so all users share its captures and
    /// faults; `owner` is then dropped. So is the owner of a primary context, for which this
    /// returns [`Context::new`].
    ///
    /// ```
    /// # #[cfg(feature = "sim")] {
    /// use std::sync::Arc;
    ///
    /// use retrograph_driver::{Context, DeviceBuffer, Driver, Stream, sys};
    ///
    /// /// A context of another library.
    /// struct Theirs(Driver, sys::CUcontext);
    ///
    /// impl Drop for Theirs {
    ///     fn drop(&mut self) {
    ///         // SAFETY: nothing in the context is in use.
    ///         unsafe { (self.0.table().cuCtxDestroy_v2)(self.1) }.ok().unwrap();
    ///     }
    /// }
    ///
    /// let driver = Driver::simulated(Default::default())?;
    /// let mut raw = sys::CUcontext::NULL;
    /// // SAFETY: the out pointer is valid.
    /// unsafe { (driver.table().cuCtxCreate_v2)(&mut raw, 0, 0) }.ok().unwrap();
    /// let theirs = Arc::new(Theirs(driver.clone(), raw));
    /// // SAFETY: the owner destroys the context when it is dropped.
    /// let context = unsafe { Context::from_raw(&driver, raw, theirs) }?;
    /// let stream = Stream::new(&context)?;
    /// let buffer = DeviceBuffer::from_slice(&stream, &[1_u32, 2])?;
    /// assert_eq!(buffer.download(&stream)?, [1, 2]);
    /// # }
    /// # Ok::<(), retrograph_driver::Error>(())
    /// ```
    ///
    /// # Safety
    /// `raw` must be a valid context of `driver` until `owner` is dropped.
    ///
    /// # Errors
    /// [`Error::RefusedDuringCapture`] if this thread captures and no context of the handle lives,
    /// or a failed driver call.
    pub unsafe fn from_raw(driver: &Driver, raw: CUcontext, owner: Owner) -> Result<Self> {
        if let Some(inner) = LIVE.find(driver, Which::Borrowed(raw)) {
            return Ok(Self { inner });
        }
        // SAFETY: the caller promises that the context is valid.
        let index = unsafe { driver.device_of(raw) }?;
        if driver.has_primary(index)? {
            let primary = Self::new(driver, index)?;
            if primary.raw() == raw {
                return Ok(primary);
            }
        }
        // SAFETY: as above, until the owner is dropped.
        let make = |releases| unsafe { Inner::borrowed(driver, index, raw, releases, owner) };
        Ok(Self { inner: LIVE.find_or_make(driver, Which::Borrowed(raw), make)? })
    }

    /// The driver.
    pub fn driver(&self) -> &Driver {
        &self.inner.driver
    }

    /// The driver functions, for calls that this crate does not wrap.
    pub fn table(&self) -> &DriverTable {
        self.inner.driver.table()
    }

    /// The driver's handle.
    pub fn raw(&self) -> CUcontext {
        self.inner.hot_path.raw
    }

    /// The index of the device.
    pub fn index(&self) -> DeviceIndex {
        self.inner.index
    }

    /// The name of the device; for a simulated device it contains `SIMULATED`.
    pub fn device_name(&self) -> &str {
        &self.inner.info.name
    }

    /// Compute capability of the device, major and minor.
    pub fn compute_capability(&self) -> (u32, u32) {
        self.inner.info.compute_capability
    }

    /// The SM target of exactly this device.
    pub fn device_target(&self) -> SmTarget {
        let (major, minor) = self.compute_capability();
        SmTarget::of_device(major, minor)
    }

    /// SMs that work in this context may use: fewer than the device has in a green context.
    pub fn multiprocessors(&self) -> u32 {
        self.inner.multiprocessors
    }

    /// Facts about the device, with its current free memory.
    ///
    /// # Errors
    /// [`Error::ContextLost`], or a failed driver call.
    pub fn info(&self) -> Result<DeviceInfo> {
        let (free_bytes, total_bytes) = self.mem_get_info()?;
        Ok(DeviceInfo { free_bytes, total_bytes, ..self.inner.info.clone() })
    }

    /// Free and total bytes of device memory.
    ///
    /// # Errors
    /// [`Error::ContextLost`], or a failed driver call.
    pub fn mem_get_info(&self) -> Result<(usize, usize)> {
        self.bind()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: the context is current, and both out pointers are valid.
        unsafe { call!(self, cuMemGetInfo_v2(&mut free, &mut total)) }?;
        Ok((free, total))
    }

    /// Waits for all work in the context.
    ///
    /// # Errors
    /// The fault of earlier work; or [`Error::RefusedDuringCapture`], even if another thread
    /// captures, because waiting would break that capture.
    pub fn synchronize(&self) -> Result<()> {
        self.bind_outside_capture("waiting for the context")?;
        let _hold = self.inner.releases.hold_in_turn();
        if self.inner.releases.capturing() {
            let operation = "waiting for the context while another thread captures in it";
            return Err(Error::RefusedDuringCapture { operation });
        }
        // SAFETY: the context is current.
        unsafe { call!(self, cuCtxSynchronize()) }
    }

    /// Makes the context current on this thread. This crate does so itself; call it before calling
    /// the driver directly.
    ///
    /// # Errors
    /// [`Error::ContextLost`], or a failed driver call.
    pub fn bind(&self) -> Result<()> {
        if let Some(cause) = self.lost() {
            return Err(Error::ContextLost { cause: cause.clone() });
        }
        // SAFETY: the handle is retained for as long as `self` lives.
        let code = unsafe { (self.inner.hot_path.make_current)(self.raw()) };
        self.check("cuCtxSetCurrent", code)
    }

    /// The call that reported the fault by which this context was lost, if any.
    pub fn lost(&self) -> Option<&CallError> {
        self.inner.hot_path.lost.get().map(Box::as_ref)
    }

    /// Makes the context current, unless this thread captures, in this context or another: the
    /// driver restricts a capturing thread on every device.
    ///
    /// # Errors
    /// [`Error::RefusedDuringCapture`] with `operation`, or as [`Context::bind`].
    pub fn bind_outside_capture(&self, operation: &'static str) -> Result<()> {
        if window::is_open() {
            return Err(Error::RefusedDuringCapture { operation });
        }
        self.bind()
    }

    /// Fails if the capture that this thread has begun in this context is lost: work enqueued now,
    /// on any stream, would run instead of being captured. The context must be current.
    pub(crate) fn require_active_capture(&self) -> Result<()> {
        let origin = match window::open_capture(self.identity()) {
            None => return Ok(()),
            Some(OpenCapture::Lost(loss)) => {
                return Err(Error::CaptureLost { loss: Box::new(loss) });
            }
            Some(OpenCapture::Active { origin }) => origin,
        };
        let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: the capture keeps its stream alive, and the out pointer is valid.
        unsafe { call!(self, cuStreamIsCapturing(origin, &mut status)) }?;
        if status == CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE {
            return Ok(());
        }
        let loss = window::record_inactive(self.identity());
        Err(Error::CaptureLost { loss: Box::new(loss) })
    }

    /// Converts the code of `call` into a result. This thread's capture records its first failure;
    /// a sticky code marks the context as lost.
    ///
    /// # Errors
    /// Unless `code` is success.
    pub fn check(&self, call: &'static str, code: CUresult) -> Result<()> {
        if code.is_success() {
            return Ok(());
        }
        let Err(error) = self.inner.driver.check(call, code) else { return Ok(()) };
        window::record_failure(self.identity(), &error);
        Err(self.failed(error))
    }

    /// Converts a failed call into an error; the first sticky one marks the context as lost.
    pub(crate) fn failed(&self, error: CallError) -> Error {
        if !error.is_sticky() {
            return Error::Call(error);
        }
        let cause = self.inner.hot_path.lost.get_or_init(|| {
            let error = self.inner.driver.explain_fault(error);
            tracing::error!(%error, "the context is lost");
            Box::new(error)
        });
        Error::ContextLost { cause: cause.as_ref().clone() }
    }

    /// Checks that `other` is this context.
    ///
    /// # Errors
    /// [`Error::WrongContext`] with `what`, the object that belongs to `other`.
    pub fn same(&self, other: &Self, what: &'static str) -> Result<()> {
        if self.identity() == other.identity() {
            return Ok(());
        }
        Err(Error::WrongContext { what })
    }

    /// Identifies this context among the live ones.
    pub(crate) fn identity(&self) -> usize {
        Arc::as_ptr(&self.inner) as usize
    }

    /// The maximum shared memory per block, in bytes.
    pub(crate) fn max_shared_bytes(&self) -> u32 {
        self.inner.max_shared_bytes
    }

    pub(crate) fn hot_path(&self) -> &PreparedCalls {
        &self.inner.hot_path
    }

    pub(crate) fn service(&self) -> CUstream {
        self.inner.service
    }

    pub(crate) fn device(&self) -> CUdevice {
        self.inner.device
    }

    pub(crate) fn releases(&self) -> &Releases {
        &self.inner.releases
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Context(device {}: {})", self.inner.index.0, self.inner.info.name)
    }
}
