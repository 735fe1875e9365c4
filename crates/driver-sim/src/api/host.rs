//! Pinned and registered host memory.

use std::ffi::c_void;
use std::ptr::NonNull;

use retrograph_driver_sys::*;

use crate::argument::{Call, Out};
use crate::refusal::{Refusal, Rule, invalid, refuse};
use crate::state::{Device, Pinned, State};

/// Allocation flags, none of which has an effect here: portable, mapped and write-combined.
const ALLOC_FLAGS: u32 = 7;
/// The mapped flag, which queries always return.
const MAPPED: u32 = 2;
/// Registration flags of every device: portable, mapped and read-only.
const REGISTER_FLAGS: u32 = 1 | MAPPED | READ_ONLY;
/// The read-only flag, which queries do not return.
const READ_ONLY: u32 = 8;
/// The end of the address space of a process.
const USER_SPACE: usize = 1 << 47;

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
        pointer.write_unless_null(std::ptr::null_mut());
        let device = self.current()?;
        self.refuse_unsafe()?;
        pointer.require()?;
        if flags & !ALLOC_FLAGS != 0 {
            return Err(invalid(Rule::HostFlags));
        }
        if bytes == 0 {
            return Ok(());
        }
        let address = self.pin(Pinned::new(bytes, device, flags | MAPPED)?)?;
        pointer.write(std::ptr::with_exposed_provenance_mut(address))
    }

    pub(crate) fn cuMemFreeHost(&mut self, pointer: Out<c_void>) -> Call {
        if pointer.is_null() {
            return Ok(());
        }
        self.refuse_release()?;
        let address = pointer.pointer().addr();
        let found =
            self.pinned.get(&address).filter(|found| !found.is_registered() && found.is_plain());
        let device = found.ok_or(invalid(Rule::HostUnknown))?.device;
        self.forget(device, address)
    }

    /// Checks a release of host memory: no context need be current, but the current one must not be
    /// lost.
    fn refuse_release(&mut self) -> Call {
        if !self.current_context().is_null() {
            self.current()?;
        }
        self.refuse_unsafe()
    }

    /// Removes host memory after queued work, which may access it, is complete.
    pub(super) fn forget(&mut self, device: usize, address: usize) -> Call {
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
        let host = NonNull::new(pointer.pointer().cast::<u8>()).ok_or(invalid(Rule::Null))?;
        let start = host.as_ptr().addr();
        let is_known = bytes > 0 && flags & !REGISTER_FLAGS == 0;
        let end =
            start.checked_add(bytes).filter(|_| is_known).ok_or(invalid(Rule::HostRegister))?;
        if end > USER_SPACE {
            return Err(refuse(CUresult::CUDA_ERROR_NOT_SUPPORTED, Rule::HostBeyond));
        }
        let mut known = self.pinned.range(..end).rev();
        if let Some((base, pinned)) = known.next()
            && base + pinned.bytes() > start
        {
            let code = CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
            return Err(match pinned.is_registered() {
                true => refuse(code, Rule::HostRegistered),
                false => invalid(Rule::HostPinned),
            });
        }
        let flags = flags & !READ_ONLY | MAPPED;
        self.pin(Pinned::registered(host, bytes, device, flags)).map(|_| ())
    }

    pub(crate) fn cuMemHostUnregister(&mut self, pointer: Out<c_void>) -> Call {
        self.refuse_release()?;
        let address = pointer.pointer().addr();
        let start = self.pinned.get(&address).filter(|found| found.is_registered());
        if let Some(device) = start.map(|found| found.device) {
            return self.forget(device, address);
        }
        // Pinned memory is mapped on each device.
        let is_known = |device: &Device| device.memory.allocation_of(address as u64).is_some();
        if pointer.is_null() || self.devices.iter().any(is_known) {
            return Err(invalid(Rule::HostInside));
        }
        let code = CUresult::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
        Err(refuse(code, Rule::HostUnregistered))
    }

    /// The pinned memory that contains an address.
    fn pinned_of(&self, pointer: Out<c_void>) -> Result<&Pinned, Refusal> {
        let found = self.pinned_at(pointer.pointer().addr(), 1);
        found.filter(|found| found.is_plain()).ok_or(invalid(Rule::HostUnknown))
    }

    pub(crate) fn cuMemHostGetDevicePointer_v2(
        &mut self,
        address: Out<CUdeviceptr>,
        pointer: Out<c_void>,
        flags: u32,
    ) -> Call {
        address.write_unless_null(0);
        self.current()?;
        if flags != 0 {
            return Err(invalid(Rule::HostFlags));
        }
        self.pinned_of(pointer)?;
        address.write(pointer.pointer().addr() as u64)
    }

    pub(crate) fn cuMemHostGetFlags(&mut self, flags: Out<u32>, pointer: Out<c_void>) -> Call {
        flags.require()?;
        self.current()?;
        let given = self.pinned_of(pointer)?.flags;
        flags.write(given)
    }
}
