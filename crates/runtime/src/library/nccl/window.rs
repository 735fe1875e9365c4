//! Memory that is registered with all ranks of a communicator (NCCL windows).

use std::ffi::c_void;
use std::sync::Arc;

use retrograph_driver::{DeviceBuffer, Error, Result};
use retrograph_kernel_abi::Element;
use retrograph_nccl_sys::{NCCL_WIN_COLL_SYMMETRIC, NcclTable, ncclWindow_t};

use super::{Communicator, check};

impl Communicator {
    /// Allocates `len` elements of arbitrary content that the collectives of this communicator
    /// exchange fast: from NCCL 2.28 on, copy engines gather blocks of such memory over NVLink, so
    /// kernels keep all multiprocessors. An older NCCL allocates ordinary memory.
    ///
    /// All ranks must call it with the same size, in the same order relative to all collectives.
    ///
    /// # Errors
    /// [`Error::Library`], [`Error::NotCalled`] after an abort, [`Error::OutOfMemory`], or if the
    /// device fails.
    pub fn allocate<T: Element>(&self, len: usize) -> Result<DeviceBuffer<T>> {
        let context = self.context();
        context.bind_outside_capture("allocating memory for collectives")?;
        self.require_not_aborted()?;
        let Some(window) = Window::new(self, len.saturating_mul(size_of::<T>()).max(1))? else {
            return DeviceBuffer::uninit(context, len);
        };
        let address = window.memory as u64;
        // SAFETY: the memory has this many elements, is aligned, and lives as long as the window.
        Ok(unsafe { DeviceBuffer::from_raw(context, address, len, Arc::new(window)) })
    }
}

/// Memory of NCCL, registered as a window of a communicator if ranks can map each other's memory.
struct Window {
    communicator: Communicator,
    memory: *mut c_void,
    window: ncclWindow_t,
}

// SAFETY: the pointer is a device address, which the host never dereferences.
unsafe impl Send for Window {}
// SAFETY: as above.
unsafe impl Sync for Window {}

impl Window {
    /// Allocates and registers `bytes`; `None` if this NCCL has no windows. All ranks must call it.
    fn new(communicator: &Communicator, bytes: usize) -> Result<Option<Self>> {
        let (table, comm) = communicator.raw();
        let &NcclTable {
            ncclMemAlloc: Some(allocate),
            ncclMemFree: Some(_),
            ncclCommWindowRegister: Some(register),
            ncclCommWindowDeregister: Some(_),
            ..
        } = table
        else {
            return Ok(None);
        };
        let (free, total) = communicator.context().mem_get_info()?;
        if bytes > free {
            return Err(Error::OutOfMemory { requested: bytes, free, total });
        }
        let mut memory = std::ptr::null_mut();
        // SAFETY: the place is valid, and the context is current.
        communicator.check("ncclMemAlloc", unsafe { allocate(&mut memory, bytes) })?;
        let (communicator, window) = (communicator.clone(), ncclWindow_t::NULL);
        let mut made = Self { communicator, memory, window };
        // SAFETY: the memory was allocated above with this size, and the communicator lives.
        let code =
            unsafe { register(comm, memory, bytes, &mut made.window, NCCL_WIN_COLL_SYMMETRIC) };
        made.communicator.check("ncclCommWindowRegister", code)?;
        Ok(Some(made))
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let (communicator, memory, window) =
            (self.communicator.clone(), self.memory as usize, self.window);
        let context = self.communicator.context().clone();
        context.release(move |driver| {
            // After a lost context, there is no memory to free.
            if communicator.context().lost().is_some() {
                return Ok(());
            }
            // Unmapping does not wait for work that uses the memory.
            // SAFETY: a release runs with the context current, and outside of captures.
            let code = unsafe { (driver.table().cuCtxSynchronize)() };
            driver.check("cuCtxSynchronize", code)?;
            let (table, comm) = communicator.raw();
            let registered = table.ncclCommWindowDeregister.filter(|_| !window.is_null());
            // An abort also deregisters windows.
            communicator.unless_aborted(|| {
                let Some(deregister) = registered else { return };
                // SAFETY: the window is registered, and no work uses it any more.
                let code = unsafe { deregister(comm, window) };
                if let Err(error) = check("ncclCommWindowDeregister", code) {
                    tracing::warn!(%error, "a window was not ended");
                }
            });
            if let Some(free) = table.ncclMemFree {
                // SAFETY: this is the last use of the memory, which `ncclMemAlloc` gave.
                let code = unsafe { free(memory as *mut c_void) };
                if let Err(error) = check("ncclMemFree", code) {
                    tracing::warn!(%error, "memory of collectives was not freed");
                }
            }
            Ok(())
        });
    }
}
