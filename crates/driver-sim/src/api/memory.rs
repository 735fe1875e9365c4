//! Device memory, pinned host memory and addresses.

use std::ffi::c_void;

use retrograph_driver_sys::*;

use crate::argument::{Call, Out};
use crate::refusal::invalid;
use crate::state::{Pinned, Route, State, memory_refusal};
use crate::work::Work;

/// Flags that change nothing here: all pinned memory is mapped and reachable from every context.
const HOST_ALLOC_FLAGS: u32 =
    CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;

impl State {
    pub(crate) fn cuMemGetInfo_v2(&mut self, free: Out<usize>, total: Out<usize>) -> Call {
        let device = self.current()?;
        let memory = &self.devices[device].memory;
        free.put((memory.total() - memory.used()) as usize)?;
        total.put(memory.total() as usize)
    }

    fn allocate(&mut self, address: Out<CUdeviceptr>, bytes: usize) -> Call {
        let device = self.current()?;
        if address.is_null() {
            return Err(invalid("memory.allocate"));
        }
        let device = &mut self.devices[device];
        let base = device.memory.alloc(bytes as u64).map_err(|error| memory_refusal(&error))?;
        device.allocations.insert(base, bytes as u64);
        address.put(base)
    }

    pub(crate) fn cuMemAlloc_v2(&mut self, address: Out<CUdeviceptr>, bytes: usize) -> Call {
        self.current()?;
        self.refuse_unsafe()?;
        self.allocate(address, bytes)
    }

    pub(crate) fn cuMemFree_v2(&mut self, address: CUdeviceptr) -> Call {
        let device = self.current()?;
        self.refuse_unsafe()?;
        if address == 0 {
            return Ok(());
        }
        if !self.devices[device].allocations.contains_key(&address) {
            return Err(invalid("memory.cuMemFree_v2"));
        }
        self.complete_device(device)?;
        self.devices[device].allocations.remove(&address);
        let freed = self.devices[device].memory.free(address);
        freed.map(|_| ()).map_err(|error| memory_refusal(&error))
    }

    pub(crate) fn cuMemAllocAsync(
        &mut self,
        address: Out<CUdeviceptr>,
        bytes: usize,
        stream: CUstream,
    ) -> Call {
        match self.route(stream)? {
            Route::Queue(_) => self.allocate(address, bytes),
            Route::Capture(..) => Err(self.unsupported("allocation nodes are not simulated")),
        }
    }

    pub(crate) fn cuMemFreeAsync(&mut self, address: CUdeviceptr, stream: CUstream) -> Call {
        let device = self.current()?;
        match self.route(stream)? {
            Route::Queue(_) if address == 0 => Ok(()),
            Route::Queue(_) if !self.devices[device].allocations.contains_key(&address) => {
                Err(invalid("memory.cuMemFreeAsync"))
            }
            Route::Queue(stream) => self.enqueue(stream, Work::Free(address)).map(|_| ()),
            Route::Capture(..) => Err(self.unsupported("free nodes are not simulated")),
        }
    }

    pub(crate) fn cuMemAllocHost_v2(&mut self, pointer: Out<*mut c_void>, bytes: usize) -> Call {
        self.cuMemHostAlloc(pointer, bytes, 0)
    }

    pub(crate) fn cuMemHostAlloc(
        &mut self,
        pointer: Out<*mut c_void>,
        bytes: usize,
        flags: u32,
    ) -> Call {
        let device = self.current()?;
        self.refuse_unsafe()?;
        if pointer.is_null() || flags & !HOST_ALLOC_FLAGS != 0 {
            return Err(invalid("memory.cuMemHostAlloc"));
        }
        let pinned = Pinned::new(bytes, device)?;
        // SAFETY: the state frees the memory only after `Memory::free` of its address, and only
        // when no kernel runs, because it runs them itself.
        let mapped = unsafe { self.devices[device].memory.map_host(pinned.host(), bytes as u64) };
        mapped.map_err(|error| memory_refusal(&error))?;
        let host = pinned.host().as_ptr();
        self.pinned.insert(host.expose_provenance(), pinned);
        pointer.put(host.cast())
    }

    pub(crate) fn cuMemFreeHost(&mut self, pointer: Out<c_void>) -> Call {
        self.current()?;
        self.refuse_unsafe()?;
        let address = pointer.pointer().addr();
        let device = self.pinned.get(&address).ok_or(invalid("memory.cuMemFreeHost"))?.device;
        // Copies that are queued may still name the memory.
        self.complete_device(device)?;
        let unmapped = self.devices[device].memory.free(address as u64);
        self.pinned.remove(&address);
        unmapped.map(|_| ()).map_err(|error| memory_refusal(&error))
    }

    pub(crate) fn cuPointerGetAttribute(
        &mut self,
        data: Out<c_void>,
        attribute: CUpointer_attribute,
        address: CUdeviceptr,
    ) -> Call {
        use CUpointer_attribute as A;
        let device = self.current()?;
        let (base, size) = self.devices[device]
            .memory
            .allocation_of(address)
            .ok_or(invalid("memory.cuPointerGetAttribute"))?;
        let pinned = self.pinned_at(address as usize, 1).is_some();
        match attribute {
            A::CU_POINTER_ATTRIBUTE_CONTEXT => {
                let context = self.devices[device].context;
                data.cast().put(context.unwrap_or(CUcontext::NULL))
            }
            A::CU_POINTER_ATTRIBUTE_MEMORY_TYPE => data.cast().put(match pinned {
                true => CUmemorytype::CU_MEMORYTYPE_HOST,
                false => CUmemorytype::CU_MEMORYTYPE_DEVICE,
            }),
            A::CU_POINTER_ATTRIBUTE_DEVICE_POINTER => data.cast().put(address),
            A::CU_POINTER_ATTRIBUTE_HOST_POINTER if pinned => data.cast().put(address),
            A::CU_POINTER_ATTRIBUTE_IS_MANAGED => data.cast().put(0u32),
            A::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => data.cast().put(device as i32),
            A::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR => data.cast().put(base),
            A::CU_POINTER_ATTRIBUTE_RANGE_SIZE => data.cast().put(size as usize),
            A::CU_POINTER_ATTRIBUTE_MAPPED => data.cast().put(1u32),
            // Addresses are never given twice, so that one names an allocation for good.
            A::CU_POINTER_ATTRIBUTE_BUFFER_ID => data.cast().put(base),
            A::CU_POINTER_ATTRIBUTE_HOST_POINTER => Err(invalid("memory.cuPointerGetAttribute.2")),
            _ => Err(self.unsupported(format!("{attribute:?} is not simulated"))),
        }
    }
}
