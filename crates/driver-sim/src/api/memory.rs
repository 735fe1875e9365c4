//! Device memory.

use retrograph_driver_sys::*;

use crate::argument::{Call, Out};
use crate::refusal::{Refusal, invalid, refuse};
use crate::state::{Allocation, State, memory_refusal};

/// What the rows of a pitched allocation are a multiple of, in bytes.
const PITCH: usize = 512;

impl State {
    pub(crate) fn cuMemGetInfo_v2(&mut self, free: Out<usize>, total: Out<usize>) -> Call {
        let device = self.current()?;
        let memory = &self.devices[device].memory;
        let (left, all) = (memory.total() - memory.used(), memory.total());
        free.offer(left as usize);
        total.offer(all as usize);
        Ok(())
    }

    /// Allocates device memory under the current context.
    pub(super) fn allocate(&mut self, bytes: usize) -> Result<CUdeviceptr, Refusal> {
        let device = self.current()?;
        let base = self.devices[device].memory.alloc(bytes as u64);
        let base = base.map_err(|error| memory_refusal(&error))?;
        self.allocations.insert(base, Allocation { bytes: bytes as u64, device });
        Ok(base)
    }

    pub(crate) fn cuMemAlloc_v2(&mut self, address: Out<CUdeviceptr>, bytes: usize) -> Call {
        self.current()?;
        self.refuse_unsafe()?;
        address.demand()?;
        let base = self.allocate(bytes)?;
        address.put(base)
    }

    pub(crate) fn cuMemAllocPitch_v2(
        &mut self,
        address: Out<CUdeviceptr>,
        pitch: Out<usize>,
        width: usize,
        height: usize,
        element: u32,
    ) -> Call {
        self.current()?;
        self.refuse_unsafe()?;
        address.demand()?;
        pitch.demand()?;
        if !matches!(element, 4 | 8 | 16) {
            return Err(invalid("memory.element"));
        }
        let huge = refuse(CUresult::CUDA_ERROR_OUT_OF_MEMORY, "memory.exhausted");
        let row = width.checked_next_multiple_of(PITCH).ok_or(huge)?;
        let base = self.allocate(row.checked_mul(height).ok_or(huge)?)?;
        address.put(base)?;
        pitch.put(row)
    }

    pub(crate) fn cuMemFree_v2(&mut self, address: CUdeviceptr) -> Call {
        let device = self.current()?;
        self.refuse_unsafe()?;
        if address == 0 {
            return Ok(());
        }
        if self.graph_memory.contains_key(&address) {
            self.note_graph_memory(address, false)?;
            self.complete_device(device)?;
            let freed = self.devices[device].memory.free(address);
            return freed.map(|_| ()).map_err(|error| memory_refusal(&error));
        }
        let known = self.allocations.get(&address).ok_or(invalid("memory.unknown"))?;
        let owner = known.device;
        self.complete_device(owner)?;
        if owner != device {
            self.complete_device(device)?;
        }
        self.allocations.remove(&address);
        let freed = self.devices[owner].memory.free(address);
        freed.map(|_| ()).map_err(|error| memory_refusal(&error))
    }

    pub(crate) fn cuMemGetAddressRange_v2(
        &mut self,
        base: Out<CUdeviceptr>,
        bytes: Out<usize>,
        address: CUdeviceptr,
    ) -> Call {
        let device = self.current()?;
        let found = self.devices[device].memory.allocation_of(address);
        let unknown = refuse(CUresult::CUDA_ERROR_NOT_FOUND, "memory.range");
        let (start, size) = found.ok_or(unknown)?;
        base.offer(start);
        bytes.offer(size as usize);
        Ok(())
    }
}
