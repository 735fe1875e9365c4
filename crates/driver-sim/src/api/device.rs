//! Devices.

use std::ffi::c_char;

use retrograph_driver_sys::*;

use super::attributes;
use crate::argument::{Call, In, Out};
use crate::config::Config;
use crate::refusal::{Refusal, Rule, invalid, refuse};
use crate::state::State;

/// SMs of a simulated device.
pub(super) const MULTIPROCESSORS: i32 = 132;
/// Resident threads per SM.
pub(super) const THREADS_PER_MULTIPROCESSOR: u32 = 2048;
/// Registers per SM, and per block.
pub(super) const REGISTERS: u32 = 65536;
/// Resident blocks per SM.
pub(super) const BLOCKS_PER_MULTIPROCESSOR: u32 = 32;
/// Shared memory per block without opt-in.
pub(super) const SHARED_BYTES: u32 = 48 << 10;
/// Shared memory per block that the system reserves.
pub(super) const RESERVED_SHARED_BYTES: u32 = 1 << 10;

/// Shared memory per SM of the compute capability, in bytes.
///
/// Source: the table of technical specifications in the CUDA programming guide.
pub(super) fn shared_per_multiprocessor(config: &Config) -> u32 {
    let kilobytes = match config.compute_capability {
        (..=7, 5) => 64,
        (8, 0 | 7) => 164,
        (8, _) | (12, _) => 100,
        (9 | 10, _) => 228,
        _ => 96,
    };
    kilobytes << 10
}

/// Shared memory per block with opt-in, in bytes.
pub(super) fn shared_opt_in(config: &Config) -> u32 {
    match config.compute_capability {
        // This architecture reserves nothing for the system.
        (..=7, _) => shared_per_multiprocessor(config),
        _ => shared_per_multiprocessor(config) - RESERVED_SHARED_BYTES,
    }
}

/// The place of a device on the PCI bus: domain, bus, device and function.
fn pci_bus_id(index: usize) -> String {
    format!("0000:00:{index:02x}.0")
}

impl State {
    /// The index of a device. Fails if it does not exist.
    pub(super) fn device_index(&self, device: CUdevice) -> Result<usize, Refusal> {
        let index = usize::try_from(device).ok().filter(|index| *index < self.config.devices);
        index.ok_or(refuse(CUresult::CUDA_ERROR_INVALID_DEVICE, Rule::DeviceDeviceIndex))
    }

    pub(crate) fn cuDeviceGet(&mut self, device: Out<CUdevice>, ordinal: i32) -> Call {
        device.require()?;
        self.device_index(ordinal)?;
        device.write(ordinal)
    }

    pub(crate) fn cuDeviceGetCount(&mut self, count: Out<i32>) -> Call {
        count.write(i32::try_from(self.config.devices).unwrap_or(i32::MAX))
    }

    pub(crate) fn cuDeviceGetName(
        &mut self,
        name: Out<c_char>,
        len: i32,
        device: CUdevice,
    ) -> Call {
        self.device_index(device)?;
        if len == 0 {
            return Err(self.undefined("the name is written to a buffer of length 0"));
        }
        // The driver reads a negative length as a large unsigned one.
        let capacity = len.cast_unsigned() as usize;
        let (major, minor) = self.config.compute_capability;
        let text = format!("SIMULATED device, compute capability {major}.{minor}");
        for (index, byte) in text.bytes().take(capacity - 1).chain([0]).enumerate() {
            name.write_at(index, byte.cast_signed() as c_char)?;
        }
        Ok(())
    }

    pub(crate) fn cuDeviceTotalMem_v2(&mut self, bytes: Out<usize>, device: CUdevice) -> Call {
        bytes.write_unless_null(0);
        bytes.require()?;
        self.check_initialized()?;
        let index = self.device_index(device)?;
        bytes.write(self.devices[index].memory.total() as usize)
    }

    pub(crate) fn cuDeviceGetUuid_v2(&mut self, uuid: Out<CUuuid>, device: CUdevice) -> Call {
        let index = self.device_index(device)?;
        let text = format!("SIMULATED-DEV-{:02}", index % 100);
        uuid.write(CUuuid { bytes: std::array::from_fn(|at| text.as_bytes()[at]) })
    }

    pub(crate) fn cuDeviceGetPCIBusId(
        &mut self,
        text: Out<c_char>,
        len: i32,
        device: CUdevice,
    ) -> Call {
        let index = self.device_index(device)?;
        text.require()?;
        let id = pci_bus_id(index);
        if usize::try_from(len).is_ok_and(|len| len <= id.len()) || len < 0 {
            return Err(self.unsupported("a PCI bus id in a buffer that is too short"));
        }
        for (index, byte) in id.bytes().chain([0]).enumerate() {
            text.write_at(index, byte.cast_signed() as c_char)?;
        }
        Ok(())
    }

    pub(crate) fn cuDeviceGetByPCIBusId(
        &mut self,
        device: Out<CUdevice>,
        text: In<c_char>,
    ) -> Call {
        device.require()?;
        let text = text.text()?;
        let found = (0..self.config.devices).find(|index| {
            let id = pci_bus_id(*index);
            // Domain and function may be missing.
            [&id[..], &id[..10], &id[5..]].contains(&text.as_str())
        });
        let index =
            found.ok_or(refuse(CUresult::CUDA_ERROR_INVALID_DEVICE, Rule::DeviceDeviceIndex))?;
        device.write(CUdevice::try_from(index).unwrap_or(CUdevice::MAX))
    }

    pub(crate) fn cuDeviceGetAttribute(
        &mut self,
        value: Out<i32>,
        attribute: CUdevice_attribute,
        device: CUdevice,
    ) -> Call {
        value.require()?;
        let advertised = match self.config.recorded_attributes {
            true => None,
            false => attributes::without_advertising(attribute),
        };
        let found = advertised
            .or_else(|| self.configured_attribute(attribute, device))
            .or_else(|| attributes::recorded(attribute))
            .ok_or(invalid(Rule::DeviceAttribute))?;
        self.device_index(device)?;
        value.write(found)
    }

    /// Attributes that follow from the configuration or differ between machines. All others are
    /// recorded on one device and reported for every compute capability.
    fn configured_attribute(&self, attribute: CUdevice_attribute, device: CUdevice) -> Option<i32> {
        use CUdevice_attribute as A;
        let capability = self.config.compute_capability;
        let (major, minor) = capability;
        Some(match attribute {
            A::CU_DEVICE_ATTRIBUTE_CLOCK_RATE | A::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE => {
                1_000_000
            }
            A::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID
            | A::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID
            | A::CU_DEVICE_ATTRIBUTE_NUMA_CONFIG
            | A::CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID
            | A::CU_DEVICE_ATTRIBUTE_GPU_PCI_DEVICE_ID
            | A::CU_DEVICE_ATTRIBUTE_GPU_PCI_SUBSYSTEM_ID => 0,
            A::CU_DEVICE_ATTRIBUTE_NUMA_ID => -1,
            A::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID => device,
            A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR => major as i32,
            A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR => minor as i32,
            A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR => {
                shared_per_multiprocessor(&self.config) as i32
            }
            A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN => {
                shared_opt_in(&self.config) as i32
            }
            A::CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH
            | A::CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED => i32::from(major >= 9),
            _ => return None,
        })
    }
}
