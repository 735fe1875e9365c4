//! Pointer attributes and address ranges.

use std::ffi::c_void;

use retrograph_driver_sys::*;

use crate::argument::{Call, In, Out};
use crate::refusal::{Refusal, Rule, invalid};
use crate::state::State;

/// Information about the memory at an address.
struct AddressInfo {
    base: u64,
    bytes: u64,
    /// The index of the context among the devices.
    device: usize,
    is_host: bool,
    is_managed: bool,
    /// Whether its device can access it.
    is_mapped: bool,
    pool: Option<CUmemoryPool>,
}

impl AddressInfo {
    /// Whether it is device memory outside pools.
    fn is_plain(&self) -> bool {
        !self.is_host && !self.is_managed && self.pool.is_none()
    }
}

/// The mapping granularity: pages of device memory, and chunks of a pool.
const PAGE: u64 = 2 << 20;
const CHUNK: u64 = 32 << 20;
/// The device ordinal of an address without a device.
const NO_DEVICE: i32 = -2;

impl State {
    fn info_of(&self, address: CUdeviceptr) -> Result<AddressInfo, Refusal> {
        if let Some(pinned) = self.pinned_at(address as usize, 1) {
            let (device, is_managed) = (pinned.device, pinned.advice.is_some());
            return Ok(AddressInfo {
                base: pinned.host().as_ptr() as u64,
                bytes: pinned.bytes() as u64,
                device,
                is_host: !is_managed,
                is_managed,
                is_mapped: self.devices[device].memory.allocation_of(address).is_some(),
                pool: pinned.pool,
            });
        }
        let mut devices = self.devices.iter().take(self.config.devices).enumerate();
        let found = devices.find_map(|(device, view)| {
            view.memory.allocation_of(address).map(|(base, bytes)| (device, base, bytes))
        });
        let (device, base, bytes) = found.ok_or(invalid(Rule::PointerUnknown))?;
        let allocation = self.allocations.get(&base);
        Ok(AddressInfo {
            base,
            bytes,
            device: allocation.map_or(device, |allocation| allocation.device),
            is_host: false,
            is_managed: false,
            is_mapped: true,
            pool: allocation.and_then(|allocation| allocation.pool),
        })
    }

    pub(crate) fn cuPointerGetAttribute(
        &mut self,
        data: Out<c_void>,
        attribute: CUpointer_attribute,
        address: CUdeviceptr,
    ) -> Call {
        let info = self.info_of(address)?;
        self.put_attribute(data, attribute, address, &info)
    }

    fn put_attribute(
        &mut self,
        data: Out<c_void>,
        attribute: CUpointer_attribute,
        address: CUdeviceptr,
        info: &AddressInfo,
    ) -> Call {
        use CUpointer_attribute as A;
        match attribute {
            A::CU_POINTER_ATTRIBUTE_CONTEXT => {
                let context = match info.pool {
                    Some(_) => None,
                    None => self.devices[info.device].context,
                };
                data.cast().write(context.unwrap_or(CUcontext::NULL))
            }
            A::CU_POINTER_ATTRIBUTE_MEMORY_TYPE => data.cast().write(match info.is_host {
                true => CUmemorytype::CU_MEMORYTYPE_HOST,
                false => CUmemorytype::CU_MEMORYTYPE_DEVICE,
            }),
            A::CU_POINTER_ATTRIBUTE_DEVICE_POINTER if !info.is_mapped => {
                Err(invalid(Rule::PointerNotMapped))
            }
            A::CU_POINTER_ATTRIBUTE_DEVICE_POINTER => data.cast().write(address),
            A::CU_POINTER_ATTRIBUTE_HOST_POINTER if info.is_host || info.is_managed => {
                data.cast().write(address)
            }
            A::CU_POINTER_ATTRIBUTE_HOST_POINTER => Err(invalid(Rule::PointerDevice)),
            A::CU_POINTER_ATTRIBUTE_IS_MANAGED => data.cast().write(u32::from(info.is_managed)),
            A::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS => {
                let is_set = self.sync_memops.get(&info.base).copied();
                let is_set = is_set.unwrap_or(info.is_managed);
                data.cast().write(u32::from(is_set))
            }
            A::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => data.cast().write(self.ordinal(info.device)),
            A::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR => data.cast().write(info.base),
            A::CU_POINTER_ATTRIBUTE_RANGE_SIZE => data.cast().write(info.bytes as usize),
            A::CU_POINTER_ATTRIBUTE_MAPPED => data.cast().write(1u32),
            // Addresses are never reused, so the base address identifies an allocation.
            A::CU_POINTER_ATTRIBUTE_BUFFER_ID | A::CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID => {
                data.cast().write(info.base)
            }
            A::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE
            | A::CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE => {
                // Neither is simulated.
                let is_advertised = self.config.recorded_attributes && info.is_plain();
                data.cast().write(u32::from(is_advertised))
            }
            A::CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES => data.cast().write(0u64),
            A::CU_POINTER_ATTRIBUTE_ACCESS_FLAGS => {
                data.cast().write(CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
            }
            A::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE => {
                data.cast().write(info.pool.unwrap_or(CUmemoryPool::NULL))
            }
            A::CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR => data.cast().write(info.base),
            A::CU_POINTER_ATTRIBUTE_MAPPING_SIZE if !info.is_host || info.pool.is_some() => {
                let unit = if info.pool.is_some() { CHUNK } else { PAGE };
                data.cast().write(info.bytes.next_multiple_of(unit))
            }
            A::CU_POINTER_ATTRIBUTE_P2P_TOKENS | A::CU_POINTER_ATTRIBUTE_MAPPING_SIZE => {
                Err(self.unsupported(format!("{attribute:?} is not simulated")))
            }
            _ => Err(invalid(Rule::PointerAttribute)),
        }
    }

    pub(crate) fn cuPointerGetAttributes(
        &mut self,
        count: u32,
        attributes: Out<CUpointer_attribute>,
        data: Out<*mut c_void>,
        address: CUdeviceptr,
    ) -> Call {
        let attributes = attributes.input().list(count as usize)?;
        let outputs = data.values().list(count as usize)?;
        let info = self.info_of(address).ok();
        for (attribute, to) in attributes.into_iter().zip(outputs) {
            // SAFETY: like the list, each pointer is valid for its attribute.
            let to: Out<c_void> = unsafe { crate::argument::Admit::admit(to) };
            match &info {
                Some(info) => match self.put_attribute(to, attribute, address, info) {
                    // The call for one attribute fails here.
                    Err(refusal) if refusal.rule == Rule::PointerDevice => to.cast().write(0u64)?,
                    put => put?,
                },
                None => self.put_unknown(to, attribute, address)?,
            }
        }
        Ok(())
    }

    /// Writes the value of an attribute for an unknown address.
    fn put_unknown(
        &mut self,
        to: Out<c_void>,
        attribute: CUpointer_attribute,
        address: CUdeviceptr,
    ) -> Call {
        use CUpointer_attribute as A;
        match attribute {
            A::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => to.cast().write(NO_DEVICE),
            // It may be host memory.
            A::CU_POINTER_ATTRIBUTE_HOST_POINTER => to.cast().write(address),
            A::CU_POINTER_ATTRIBUTE_RANGE_SIZE => Ok(()),
            A::CU_POINTER_ATTRIBUTE_MEMORY_TYPE
            | A::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
            | A::CU_POINTER_ATTRIBUTE_IS_MANAGED
            | A::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE
            | A::CU_POINTER_ATTRIBUTE_MAPPED
            | A::CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE
            | A::CU_POINTER_ATTRIBUTE_ACCESS_FLAGS => to.cast().write(0u32),
            A::CU_POINTER_ATTRIBUTE_DEVICE_POINTER
            | A::CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES
            | A::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE
            | A::CU_POINTER_ATTRIBUTE_MAPPING_SIZE
            | A::CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR
            | A::CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID => to.cast().write(0u64),
            _ => Err(self.unsupported(format!("{attribute:?} of an unknown address"))),
        }
    }

    pub(crate) fn cuPointerSetAttribute(
        &mut self,
        value: In<c_void>,
        attribute: CUpointer_attribute,
        address: CUdeviceptr,
    ) -> Call {
        if attribute != CUpointer_attribute::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS {
            return Err(invalid(Rule::PointerAttribute));
        }
        let base = self.info_of(address)?.base;
        let on = value.bytes(4)?.iter().any(|byte| *byte != 0);
        self.sync_memops.insert(base, on);
        Ok(())
    }
}
