//! Devices: their number, and facts about each before a context exists.

use std::ffi::{CStr, c_char, c_int};

use retrograph_driver_sys::{CUcontext, CUdevice, CUdevice_attribute};

use crate::driver::Driver;
use crate::error::{Error, Result};

/// The index of a device among those that the driver reports, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DeviceIndex(pub u32);

/// Facts about a device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// The name; for a simulated device it contains `SIMULATED`.
    pub name: String,
    /// Compute capability, major and minor.
    pub compute_capability: (u32, u32),
    /// Device memory in bytes.
    pub total_bytes: usize,
    /// Free device memory in bytes at the time of the query.
    pub free_bytes: usize,
    /// Number of streaming multiprocessors.
    pub multiprocessors: u32,
}

impl Driver {
    /// The number of devices.
    ///
    /// # Errors
    /// If the driver fails.
    pub fn device_count(&self) -> Result<u32> {
        let mut count: c_int = 0;
        // SAFETY: the driver is initialized, and the out pointer is valid.
        unsafe { call!(self, cuDeviceGetCount(&mut count)) }?;
        Ok(u32::try_from(count).unwrap_or(0))
    }

    pub(crate) fn device(&self, index: DeviceIndex) -> Result<CUdevice> {
        let count = self.device_count()?;
        if index.0 >= count {
            return Err(Error::NoSuchDevice { index: index.0, count });
        }
        let mut device = CUdevice::default();
        // SAFETY: the index is below the count, and the out pointer is valid.
        unsafe { call!(self, cuDeviceGet(&mut device, index.0 as c_int)) }?;
        Ok(device)
    }

    /// The device of a context, which becomes current.
    ///
    /// # Safety
    /// The context must be valid.
    pub(crate) unsafe fn device_of(&self, raw: CUcontext) -> Result<DeviceIndex> {
        let mut device = CUdevice::default();
        // SAFETY: the caller promises that the context is valid, and the out pointer is.
        unsafe {
            call!(self, cuCtxSetCurrent(raw))?;
            call!(self, cuCtxGetDevice(&mut device))?;
        }
        let count = self.device_count()?;
        for index in (0..count).map(DeviceIndex) {
            if self.device(index)? == device {
                return Ok(index);
            }
        }
        // Not reached: the context belongs to a device that the driver sees.
        Err(Error::NoSuchDevice { index: device.cast_unsigned(), count })
    }

    /// Whether the primary context of a device exists.
    pub(crate) fn has_primary(&self, index: DeviceIndex) -> Result<bool> {
        let (device, mut flags, mut active) = (self.device(index)?, 0, 0);
        // SAFETY: the device comes from this driver, and both out pointers are valid.
        unsafe { call!(self, cuDevicePrimaryCtxGetState(device, &mut flags, &mut active)) }?;
        Ok(active != 0)
    }

    /// Facts that need no context; `free_bytes` is 0.
    pub(crate) fn info(&self, device: CUdevice) -> Result<DeviceInfo> {
        let mut name = [0 as c_char; 256];
        let mut total_bytes = 0;
        // SAFETY: the buffer has this length, and the driver zero-terminates the text.
        let name = unsafe {
            call!(self, cuDeviceGetName(name.as_mut_ptr(), 255, device))?;
            CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned()
        };
        // SAFETY: the out pointer is valid.
        unsafe { call!(self, cuDeviceTotalMem_v2(&mut total_bytes, device)) }?;
        let attribute = |attribute| self.attribute(device, attribute);
        let major = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        let multiprocessors =
            attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let compute_capability = (major, minor);
        Ok(DeviceInfo { name, compute_capability, total_bytes, free_bytes: 0, multiprocessors })
    }

    pub(crate) fn attribute(&self, device: CUdevice, attribute: CUdevice_attribute) -> Result<u32> {
        let mut value: c_int = 0;
        // SAFETY: the out pointer is valid, and the driver refuses unknown attributes.
        unsafe { call!(self, cuDeviceGetAttribute(&mut value, attribute, device)) }?;
        Ok(u32::try_from(value).unwrap_or(0))
    }
}
