//! Pinned and registered host memory.

use std::ffi::c_void;
use std::ptr::NonNull;

use retrograph_driver_sys::*;

use crate::argument::{Call, Out};
use crate::refusal::{Refusal, invalid, refuse};
use crate::state::{Pinned, State};

/// Flags that change nothing here: all pinned memory is mapped and reachable from every context.
const ALLOC_FLAGS: u32 = 7;
/// Flags of a registration: the same for every context and device, of a device's registers, and
/// memory that the device only reads.
const REGISTER_FLAGS: u32 = 15;

impl State {
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
        pointer.demand()?;
        if flags & !ALLOC_FLAGS != 0 {
            return Err(invalid("host.flags"));
        }
        let address = self.pin(Pinned::new(bytes, device, flags)?)?;
        pointer.put(std::ptr::with_exposed_provenance_mut(address))
    }

    pub(crate) fn cuMemFreeHost(&mut self, pointer: Out<c_void>) -> Call {
        self.current()?;
        self.refuse_unsafe()?;
        self.forget(pointer, false)
    }

    /// Forgets host memory that starts at this address and was registered, or was not.
    fn forget(&mut self, pointer: Out<c_void>, registered: bool) -> Call {
        let address = pointer.pointer().addr();
        let unknown = match registered {
            true => refuse(CUresult::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "host.unregistered"),
            false => invalid("host.unknown"),
        };
        let found = self.pinned.get(&address).filter(|found| found.is_registered() == registered);
        let device = found.ok_or(unknown)?.device;
        // Copies that are queued may still name the memory.
        self.complete_device(device)?;
        self.unpin(address);
        Ok(())
    }

    pub(crate) fn cuMemHostRegister_v2(
        &mut self,
        pointer: Out<c_void>,
        bytes: usize,
        flags: u32,
    ) -> Call {
        let device = self.current()?;
        self.refuse_unsafe()?;
        let host = NonNull::new(pointer.pointer().cast::<u8>()).ok_or(invalid("null"))?;
        if bytes == 0 || flags & !REGISTER_FLAGS != 0 {
            return Err(invalid("host.register"));
        }
        let start = host.as_ptr().addr();
        let end = start.checked_add(bytes).ok_or(invalid("host.register"))?;
        let mut known = self.pinned.range(..end).rev();
        if known.next().is_some_and(|(base, pinned)| base + pinned.bytes() > start) {
            let code = CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
            return Err(refuse(code, "host.registered"));
        }
        self.pin(Pinned::registered(host, bytes, device, flags)).map(|_| ())
    }

    pub(crate) fn cuMemHostUnregister(&mut self, pointer: Out<c_void>) -> Call {
        self.current()?;
        self.refuse_unsafe()?;
        self.forget(pointer, true)
    }

    /// The pinned memory that an address lies in.
    fn pinned_of(&self, pointer: Out<c_void>) -> Result<&Pinned, Refusal> {
        self.pinned_at(pointer.pointer().addr(), 1).ok_or(invalid("host.unknown"))
    }

    pub(crate) fn cuMemHostGetDevicePointer_v2(
        &mut self,
        address: Out<CUdeviceptr>,
        pointer: Out<c_void>,
        flags: u32,
    ) -> Call {
        self.current()?;
        address.demand()?;
        if flags != 0 {
            return Err(invalid("host.flags"));
        }
        self.pinned_of(pointer)?;
        address.put(pointer.pointer().addr() as u64)
    }

    pub(crate) fn cuMemHostGetFlags(&mut self, flags: Out<u32>, pointer: Out<c_void>) -> Call {
        self.current()?;
        flags.demand()?;
        let given = self.pinned_of(pointer)?.flags;
        flags.put(given)
    }
}
