//! The context of one device: what everything on that device hangs on, and what ends with a fault.
//!
//! [`Context`] retains the device's primary context, so that libraries which use the CUDA runtime
//! API share it. Each entry point of this crate makes the context current on the calling thread,
//! hence threads need no preparation. A cache of what is current is absent on purpose: another
//! library may change it behind our back, and setting it again is harmless.
//!
//! # Lost contexts
//!
//! A kernel fault (700, 719 and the like) ends the context, and every later call returns its code.
//! The first such code is kept, and each later operation fails at once with [`Error::ContextLost`]
//! and that cause, before it reaches the driver.

use std::fmt;
use std::sync::Arc;

use retrograph_driver_sys::{
    CUcontext, CUdevice, CUdevice_attribute, CUresult, CUstream, DriverTable,
};
use retrograph_kernels::SmTarget;

use crate::capture::window;
use crate::device::{DeviceIndex, DeviceInfo};
use crate::driver::Driver;
use crate::error::{CallError, Error, Result};
use crate::frequent::Frequent;
use crate::live;
use crate::nvtx;
use crate::release::{Release, Releases};

/// A retained primary context. Clones share it.
#[derive(Clone)]
pub struct Context {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    frequent: Frequent,
    driver: Driver,
    index: DeviceIndex,
    device: CUdevice,
    /// Our own stream for fills and the like, so that the legacy stream is never used.
    service: CUstream,
    facts: DeviceInfo,
    target: SmTarget,
    most_shared_bytes: u32,
    releases: Arc<Releases>,
}

impl Inner {
    fn new(driver: &Driver, index: DeviceIndex, releases: Arc<Releases>) -> Result<Self> {
        let device = driver.device(index)?;
        let (facts, target) = driver.facts_and_target(device)?;
        let most = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
        let most_shared_bytes = driver.attribute(device, most)?;
        let mut raw = CUcontext::NULL;
        // SAFETY: `device` comes from this driver, and `raw` is a valid place for the result.
        unsafe { call!(driver, cuDevicePrimaryCtxRetain(&mut raw, device)) }?;
        let service = service_stream(driver, raw).inspect_err(|_| {
            // SAFETY: the context was retained above and nothing was made in it. The outcome does
            // not matter, since the first error is the one to report.
            let _ = unsafe { (driver.table().cuDevicePrimaryCtxRelease_v2)(device) };
        })?;
        let (driver, frequent) = (driver.clone(), Frequent::new(raw, driver.table()));
        Ok(Self {
            frequent,
            driver,
            index,
            device,
            service,
            facts,
            target,
            most_shared_bytes,
            releases,
        })
    }
}

impl Context {
    /// Retains the primary context of device `index`. While a context of this device lives, the
    /// same one is returned, even if its driver was loaded apart from this one. Its captures and
    /// its faults are thus known to all who use it.
    ///
    /// # Errors
    /// [`Error::NoSuchDevice`], [`Error::UnsupportedDevice`], or a failed driver call.
    pub fn new(driver: &Driver, index: DeviceIndex) -> Result<Self> {
        // Finding the library of ranges takes a millisecond, which prewarming need not pay.
        let _range = nvtx::range(c"retrograph: open context");
        let make = |releases| Inner::new(driver, index, releases);
        Ok(Self { inner: live::find_or_make(driver, index, make)? })
    }

    /// The driver.
    pub fn driver(&self) -> &Driver {
        &self.inner.driver
    }

    /// The driver's functions, for calls that this crate does not wrap.
    pub fn table(&self) -> &DriverTable {
        self.inner.driver.table()
    }

    /// The driver's handle.
    pub fn raw(&self) -> CUcontext {
        self.inner.frequent.raw
    }

    /// The index of the device.
    pub fn index(&self) -> DeviceIndex {
        self.inner.index
    }

    /// The newest generated SM target that runs on the device.
    pub fn target(&self) -> SmTarget {
        self.inner.target
    }

    /// The SM target that names exactly the device.
    pub fn device_target(&self) -> SmTarget {
        let (major, minor) = self.inner.facts.compute_capability;
        SmTarget::of_device(major, minor)
    }

    /// The device, with the free memory of this moment.
    ///
    /// # Errors
    /// When the context is lost or the driver fails.
    pub fn info(&self) -> Result<DeviceInfo> {
        let (free_bytes, total_bytes) = self.memory()?;
        Ok(DeviceInfo { free_bytes, total_bytes, ..self.inner.facts.clone() })
    }

    /// Free and total bytes of device memory.
    ///
    /// # Errors
    /// When the context is lost or the driver fails.
    pub fn memory(&self) -> Result<(usize, usize)> {
        self.bind()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: the context is current, and both places are valid.
        unsafe { call!(self, cuMemGetInfo_v2(&mut free, &mut total)) }?;
        Ok((free, total))
    }

    /// Waits for all work in the context.
    ///
    /// # Errors
    /// The fault of earlier work, or [`Error::RefusedDuringCapture`], also when another thread
    /// captures: the context includes the stream that it captures.
    pub fn synchronize(&self) -> Result<()> {
        self.bind_outside_capture("waiting for the context")?;
        let _gate = self.inner.releases.no_capture_begins();
        if self.inner.releases.capturing() {
            let operation = "waiting for the context while another thread captures in it";
            return Err(Error::RefusedDuringCapture { operation });
        }
        // SAFETY: the context is current.
        unsafe { call!(self, cuCtxSynchronize()) }
    }

    /// Makes the context current on this thread. Everything in this crate does so by itself; it is
    /// public for those who call the driver directly.
    ///
    /// # Errors
    /// When the context is lost or the driver fails.
    pub fn bind(&self) -> Result<()> {
        if let Some(cause) = self.lost() {
            return Err(Error::ContextLost { cause: cause.clone() });
        }
        // SAFETY: the handle is retained for as long as `self` lives.
        let code = unsafe { (self.inner.frequent.make_current)(self.raw()) };
        self.check("cuCtxSetCurrent", code)
    }

    /// The call that told of the fault which ended this context, if one did.
    pub fn lost(&self) -> Option<&CallError> {
        self.inner.frequent.lost.get().map(Box::as_ref)
    }

    /// Binds, and refuses `operation` while this thread captures in this context.
    pub(crate) fn bind_outside_capture(&self, operation: &'static str) -> Result<()> {
        if window::is_open(self) {
            return Err(Error::RefusedDuringCapture { operation });
        }
        self.bind()
    }

    /// Turns the code of `call` into a result. A failure is noted in the capture that this thread
    /// has begun, and one that ends the context is kept for all later calls.
    pub(crate) fn check(&self, call: &'static str, code: CUresult) -> Result<()> {
        if code.is_success() {
            return Ok(());
        }
        let Err(error) = self.inner.driver.check(call, code) else { return Ok(()) };
        window::note_failure(self, &error);
        Err(self.failed(error))
    }

    /// What a failed call means for the context. The first call that tells of a fault is kept.
    pub(crate) fn failed(&self, error: CallError) -> Error {
        if !error.is_sticky() {
            return Error::Call(error);
        }
        let cause = self.inner.frequent.lost.get_or_init(|| {
            let error = self.inner.driver.explain_fault(error);
            tracing::error!(%error, "the context is lost");
            Box::new(error)
        });
        Error::ContextLost { cause: cause.as_ref().clone() }
    }

    /// Fails unless `other` is this context.
    pub(crate) fn same(&self, other: &Self, what: &'static str) -> Result<()> {
        if self.identity() == other.identity() {
            return Ok(());
        }
        Err(Error::ForeignContext { what })
    }

    /// What tells this context from every other live one.
    pub(crate) fn identity(&self) -> usize {
        Arc::as_ptr(&self.inner) as usize
    }

    /// The most shared memory that a kernel may ask for, in bytes of one block.
    pub(crate) fn most_shared_bytes(&self) -> u32 {
        self.inner.most_shared_bytes
    }

    /// What every step needs of it.
    pub(crate) fn frequent(&self) -> &Frequent {
        &self.inner.frequent
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
        write!(f, "Context(device {}: {})", self.inner.index.0, self.inner.facts.name)
    }
}

fn service_stream(driver: &Driver, raw: CUcontext) -> Result<CUstream, CallError> {
    let mut stream = CUstream::NULL;
    // SAFETY: `raw` was retained by the caller, and `stream` is a valid place for the result.
    unsafe {
        call!(driver, cuCtxSetCurrent(raw))?;
        call!(driver, cuStreamCreate(&mut stream, crate::stream::NON_BLOCKING))?;
    }
    Ok(stream)
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The driver is kept, since this may run when nothing else of it is left.
        let (driver, raw) = (self.driver.clone(), self.frequent.raw);
        let (releases, service, device) = (self.releases.clone(), self.service, self.device);
        let end = move |_: &Driver| {
            end_context(&driver, raw, &releases, (service, device));
            Ok(())
        };
        // The next context of the device may have been made meanwhile, and a thread may capture in
        // it.
        let _gate = self.releases.no_capture_begins();
        if let Some(mut end) = self.releases.now_or_later(Release::new(end)) {
            let _ = end.run(&self.driver);
        }
    }
}

/// Hands back what is left, the service stream and the context. Failures are not passed on: on a
/// lost context every call returns the fault.
fn end_context(
    driver: &Driver,
    raw: CUcontext,
    releases: &Releases,
    (service, device): (CUstream, CUdevice),
) {
    let (table, mut before) = (driver.table(), CUcontext::NULL);
    // SAFETY: everything made in the context held a clone of it, so nothing is left but what is
    // destroyed here.
    unsafe {
        let _ = (table.cuCtxGetCurrent)(&mut before);
        let _ = (table.cuCtxSetCurrent)(raw);
        for mut left in releases.due() {
            let outcome = left.run(driver);
            outcome.unwrap_or_else(|error| tracing::warn!(%error, "a release failed"));
        }
        let _ = (table.cuStreamDestroy_v2)(service);
        let release = || call!(driver, cuDevicePrimaryCtxRelease_v2(device));
        // The device keeps all memory of the context until this succeeds.
        let released = release().or_else(|error| {
            tracing::warn!(%error, "the context is released once more");
            release()
        });
        released.unwrap_or_else(|error| tracing::error!(%error, "the context is leaked"));
        // What others had made current stays so; what has just ended does not.
        let after = if before == raw { CUcontext::NULL } else { before };
        let _ = (table.cuCtxSetCurrent)(after);
    }
}
