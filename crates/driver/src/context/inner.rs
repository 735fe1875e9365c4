//! The state of a [`Context`](super::Context), and its release.

use std::sync::Arc;

use retrograph_driver_sys::{
    CU_STREAM_NON_BLOCKING, CUcontext, CUdevResource, CUdevResourceType, CUdevice,
    CUdevice_attribute, CUresult, CUstream,
};

use crate::call::CallError;
use crate::capture::window;
use crate::device::{DeviceIndex, DeviceInfo};
use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::hot_path::PreparedCalls;
use crate::owner::Owner;
use crate::release::{Release, Releases};

pub(super) struct Inner {
    pub(super) hot_path: PreparedCalls,
    pub(super) driver: Driver,
    pub(super) index: DeviceIndex,
    pub(super) device: CUdevice,
    /// A stream for internal work such as fills, so that the legacy stream is never used.
    pub(super) service: CUstream,
    pub(super) info: DeviceInfo,
    pub(super) multiprocessors: u32,
    pub(super) max_shared_bytes: u32,
    pub(super) releases: Arc<Releases>,
    /// The owner of a borrowed context; `None` for a retained primary context.
    owner: Option<Owner>,
}

impl Inner {
    /// Retains the primary context of a device.
    pub(super) fn primary(
        driver: &Driver,
        index: DeviceIndex,
        releases: Arc<Releases>,
    ) -> Result<Self> {
        refuse_in_capture()?;
        let (device, mut raw) = (driver.device(index)?, CUcontext::NULL);
        // SAFETY: `device` comes from this driver, and `raw` is valid for writing.
        unsafe { call!(driver, cuDevicePrimaryCtxRetain(&mut raw, device)) }?;
        Self::new(driver, index, raw, releases, None).inspect_err(|_| {
            // SAFETY: the context was retained above and is unused. The first error is reported, so
            // the outcome is ignored.
            let _ = unsafe { (driver.table().cuDevicePrimaryCtxRelease_v2)(device) };
        })
    }

    /// Borrows a context of the device from `owner`.
    ///
    /// # Safety
    /// As [`Context::from_raw`](super::Context::from_raw).
    pub(super) unsafe fn borrowed(
        driver: &Driver,
        index: DeviceIndex,
        raw: CUcontext,
        releases: Arc<Releases>,
        owner: Owner,
    ) -> Result<Self> {
        refuse_in_capture()?;
        Self::new(driver, index, raw, releases, Some(owner))
    }

    fn new(
        driver: &Driver,
        index: DeviceIndex,
        raw: CUcontext,
        releases: Arc<Releases>,
        owner: Option<Owner>,
    ) -> Result<Self> {
        let device = driver.device(index)?;
        let info = driver.info(device)?;
        let limit = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
        let max_shared_bytes = driver.attribute(device, limit)?;
        let multiprocessors = multiprocessors_of(driver, raw)?.unwrap_or(info.multiprocessors);
        let service = service_stream(driver, raw)?;
        let (driver, hot_path) = (driver.clone(), PreparedCalls::new(raw, driver.table()));
        Ok(Self {
            hot_path,
            driver,
            index,
            device,
            service,
            info,
            multiprocessors,
            max_shared_bytes,
            releases,
            owner,
        })
    }
}

fn refuse_in_capture() -> Result<()> {
    match window::is_open() {
        true => Err(Error::RefusedDuringCapture { operation: "opening a context" }),
        false => Ok(()),
    }
}

/// SMs that work of a context may use; `None` if the driver cannot tell, as before CUDA 12.4.
fn multiprocessors_of(driver: &Driver, raw: CUcontext) -> Result<Option<u32>, CallError> {
    let Some(ask) = driver.table().cuCtxGetDevResource else { return Ok(None) };
    let (mut resource, kind) =
        (CUdevResource::default(), CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM);
    // SAFETY: the caller holds the context, and `resource` is valid for writing.
    let code = unsafe { ask(raw, &mut resource, kind) };
    if code == CUresult::CUDA_ERROR_NOT_SUPPORTED {
        return Ok(None);
    }
    driver.check("cuCtxGetDevResource", code)?;
    // SAFETY: resources of this type have multiprocessors.
    Ok(Some(unsafe { resource.anonymous.sm }.smCount).filter(|count| *count > 0))
}

fn service_stream(driver: &Driver, raw: CUcontext) -> Result<CUstream, CallError> {
    let mut stream = CUstream::NULL;
    // SAFETY: the caller holds the context, and `stream` is valid for writing.
    unsafe {
        call!(driver, cuCtxSetCurrent(raw))?;
        call!(driver, cuStreamCreate(&mut stream, CU_STREAM_NON_BLOCKING))?;
    }
    Ok(stream)
}

impl Drop for Inner {
    fn drop(&mut self) {
        // This may be the last user of the driver.
        let (driver, raw) = (self.driver.clone(), self.hot_path.raw);
        let (releases, service, device) = (self.releases.clone(), self.service, self.device);
        let mut owner = self.owner.take();
        let end = move |_: &Driver| {
            end_context(&driver, raw, &releases, service, owner.is_none().then_some(device));
            // Its drop may destroy the context.
            owner = None;
            Ok(())
        };
        let (driver, releases) = (self.driver.clone(), self.releases.clone());
        // This thread may capture on another device.
        window::after_captures(move || {
            // The device's next context may already exist, and a thread may capture in it.
            let _hold = releases.hold();
            if let Some(mut end) = releases.ready_or_defer(Release::new(end)) {
                let _ = end.run(&driver);
            }
        });
    }
}

/// Runs the remaining releases, then destroys the service stream and releases the primary context
/// of `device`, if given. Failures are only logged: in a lost context every call fails.
fn end_context(
    driver: &Driver,
    raw: CUcontext,
    releases: &Releases,
    service: CUstream,
    device: Option<CUdevice>,
) {
    let (table, mut before) = (driver.table(), CUcontext::NULL);
    // SAFETY: every object made in the context held a clone of it, so only these are left.
    unsafe {
        let _ = (table.cuCtxGetCurrent)(&mut before);
        let _ = (table.cuCtxSetCurrent)(raw);
        for mut left in releases.take_ready() {
            let outcome = left.run(driver);
            outcome.unwrap_or_else(|error| tracing::warn!(%error, "a release failed"));
        }
        let _ = (table.cuStreamDestroy_v2)(service);
        if let Some(device) = device {
            release_primary(driver, device);
        }
        // Restores the context that was current before, unless it is the one that just ended.
        let after = if before == raw && device.is_some() { CUcontext::NULL } else { before };
        let _ = (table.cuCtxSetCurrent)(after);
    }
}

/// Releases the primary context of a device. The device keeps all memory of the context until this
/// succeeds.
fn release_primary(driver: &Driver, device: CUdevice) {
    // SAFETY: the context was retained once, and is released once.
    let release = || unsafe { call!(driver, cuDevicePrimaryCtxRelease_v2(device)) };
    let released = release().or_else(|error| {
        tracing::warn!(%error, "releasing the context failed; trying once more");
        release()
    });
    released.unwrap_or_else(|error| tracing::error!(%error, "the context is leaked"));
}
