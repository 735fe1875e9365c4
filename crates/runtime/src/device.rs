//! Devices: how many there are and what is known of each, before a context exists.

use std::ffi::{CStr, c_char, c_int};

use retrograph_driver_sys::{CUdevice, CUdevice_attribute};
use retrograph_kernels::SmTarget;

use crate::driver::Driver;
use crate::error::{Error, Result};

/// The position of a device among those that the driver sees, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DeviceIndex(pub u32);

/// What is known of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The name; it says so when the device is simulated.
    pub name: String,
    /// Compute capability, major and minor.
    pub compute_capability: (u32, u32),
    /// All bytes of device memory.
    pub total_bytes: usize,
    /// Free bytes of device memory when this was asked.
    pub free_bytes: usize,
    /// Number of multiprocessors.
    pub multiprocessors: u32,
}

impl Driver {
    /// The number of devices.
    ///
    /// # Errors
    /// When the driver fails.
    pub fn device_count(&self) -> Result<u32> {
        let mut count: c_int = 0;
        // SAFETY: the driver is initialized, and the place is valid.
        unsafe { call!(self, cuDeviceGetCount(&mut count)) }?;
        Ok(u32::try_from(count).unwrap_or(0))
    }

    pub(crate) fn device(&self, index: DeviceIndex) -> Result<CUdevice> {
        let count = self.device_count()?;
        if index.0 >= count {
            return Err(Error::NoSuchDevice { index: index.0, count });
        }
        let mut device = CUdevice::default();
        // SAFETY: the index is below the count, and the place is valid.
        unsafe { call!(self, cuDeviceGet(&mut device, index.0 as c_int)) }?;
        Ok(device)
    }

    /// The facts of a device, and the newest generated SM target that runs on it.
    pub(crate) fn facts_and_target(&self, device: CUdevice) -> Result<(DeviceInfo, SmTarget)> {
        let facts = self.facts(device)?;
        let (major, minor) = facts.compute_capability;
        match SmTarget::for_device(major, minor) {
            Some(target) => Ok((facts, target)),
            None => Err(Error::UnsupportedDevice { device: facts.name, major, minor }),
        }
    }

    /// What is known of a device without a context; `free_bytes` is 0 until one exists.
    fn facts(&self, device: CUdevice) -> Result<DeviceInfo> {
        let mut name = [0 as c_char; 256];
        let mut total_bytes = 0;
        // SAFETY: the buffer is as long as said, and the driver ends the text with a zero.
        let name = unsafe {
            call!(self, cuDeviceGetName(name.as_mut_ptr(), 255, device))?;
            CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned()
        };
        // SAFETY: the place is valid.
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
        // SAFETY: the place is valid, and the driver refuses what it does not know.
        unsafe { call!(self, cuDeviceGetAttribute(&mut value, attribute, device)) }?;
        Ok(u32::try_from(value).unwrap_or(0))
    }
}
