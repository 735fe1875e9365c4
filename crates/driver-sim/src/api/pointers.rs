//! What can be asked of an address.

use std::ffi::c_void;

use retrograph_driver_sys::*;

use crate::argument::{Call, Out};
use crate::refusal::invalid;
use crate::state::State;

/// What is known of an address.
struct Place {
    base: u64,
    bytes: u64,
    /// The context, by its place among the devices.
    device: usize,
    is_host: bool,
}

impl State {
    fn place_of(&self, address: CUdeviceptr, current: usize) -> Option<Place> {
        let (base, bytes) = self.devices[current].memory.allocation_of(address)?;
        let pinned = self.pinned_at(address as usize, 1).map(|pinned| pinned.device);
        let owner = self.allocations.get(&base).map(|allocation| allocation.device);
        let device = pinned.or(owner).unwrap_or(current);
        Some(Place { base, bytes, device, is_host: pinned.is_some() })
    }

    pub(crate) fn cuPointerGetAttribute(
        &mut self,
        data: Out<c_void>,
        attribute: CUpointer_attribute,
        address: CUdeviceptr,
    ) -> Call {
        use CUpointer_attribute as A;
        let current = self.current()?;
        data.demand()?;
        let place = self.place_of(address, current).ok_or(invalid("pointer.unknown"))?;
        match attribute {
            A::CU_POINTER_ATTRIBUTE_CONTEXT => {
                let context = self.devices[place.device].context;
                data.cast().put(context.unwrap_or(CUcontext::NULL))
            }
            A::CU_POINTER_ATTRIBUTE_MEMORY_TYPE => data.cast().put(match place.is_host {
                true => CUmemorytype::CU_MEMORYTYPE_HOST,
                false => CUmemorytype::CU_MEMORYTYPE_DEVICE,
            }),
            A::CU_POINTER_ATTRIBUTE_DEVICE_POINTER => data.cast().put(address),
            A::CU_POINTER_ATTRIBUTE_HOST_POINTER if place.is_host => data.cast().put(address),
            A::CU_POINTER_ATTRIBUTE_HOST_POINTER => Err(invalid("pointer.device")),
            A::CU_POINTER_ATTRIBUTE_IS_MANAGED => data.cast().put(0u32),
            A::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => data.cast().put(self.ordinal(place.device)),
            A::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR => data.cast().put(place.base),
            A::CU_POINTER_ATTRIBUTE_RANGE_SIZE => data.cast().put(place.bytes as usize),
            A::CU_POINTER_ATTRIBUTE_MAPPED => data.cast().put(1u32),
            // Addresses are never given twice, so that one names an allocation for good.
            A::CU_POINTER_ATTRIBUTE_BUFFER_ID => data.cast().put(place.base),
            _ => Err(self.unsupported(format!("{attribute:?} is not simulated"))),
        }
    }
}
