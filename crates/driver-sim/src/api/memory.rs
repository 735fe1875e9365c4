//! Device memory.
//!
//! Calls that return an address write null first, even if they fail.

use retrograph_driver_sys::*;

use crate::argument::{Call, Out};
use crate::refusal::{Refusal, Rule, invalid, refuse};
use crate::state::{Allocation, State, memory_refusal};

/// The alignment of rows of a pitched allocation, in bytes.
const PITCH: usize = 512;

impl State {
    pub(crate) fn cuMemGetInfo_v2(&mut self, free: Out<usize>, total: Out<usize>) -> Call {
        free.write_unless_null(0);
        total.write_unless_null(0);
        let device = self.current()?;
        let memory = &self.devices[device].memory;
        let (left, all) = (memory.total() - memory.used(), memory.total());
        free.write_unless_null(left as usize);
        total.write_unless_null(all as usize);
        Ok(())
    }

    /// Allocates device memory in a context, optionally from a pool.
    pub(super) fn allocate(
        &mut self,
        device: usize,
        bytes: usize,
        pool: Option<CUmemoryPool>,
    ) -> Result<CUdeviceptr, Refusal> {
        let base = self.devices[device].memory.alloc(bytes as u64);
        let base = base.map_err(|error| memory_refusal(&error))?;
        let bytes = bytes as u64;
        self.allocations.insert(base, Allocation { bytes, device, pool, is_freed: false });
        Ok(base)
    }

    pub(crate) fn cuMemAlloc_v2(&mut self, address: Out<CUdeviceptr>, bytes: usize) -> Call {
        address.write_unless_null(0);
        let device = self.current()?;
        self.refuse_unsafe()?;
        address.require()?;
        let base = self.allocate(device, bytes, None)?;
        address.write(base)
    }

    pub(crate) fn cuMemAllocPitch_v2(
        &mut self,
        address: Out<CUdeviceptr>,
        pitch: Out<usize>,
        width: usize,
        height: usize,
        element: u32,
    ) -> Call {
        address.write_unless_null(0);
        pitch.write_unless_null(0);
        let device = self.current()?;
        address.require()?;
        pitch.require()?;
        if !matches!(element, 4 | 8 | 16) {
            return Err(invalid(Rule::MemoryElement));
        }
        if width == 0 || height == 0 {
            return Err(invalid(Rule::MemoryNoRows));
        }
        let huge = invalid(Rule::MemoryUncountable);
        let row = width.checked_next_multiple_of(PITCH).ok_or(huge)?;
        // The driver writes the pitch before it allocates.
        pitch.write_unless_null(row);
        self.refuse_unsafe()?;
        let base = self.allocate(device, row.checked_mul(height).ok_or(huge)?, None)?;
        address.write(base)
    }

    pub(crate) fn cuMemFree_v2(&mut self, address: CUdeviceptr) -> Call {
        if address == 0 {
            // Freeing null does nothing, but fails if the current context is lost.
            return self.refuse_lost().and_then(|()| self.refuse_unsafe());
        }
        self.refuse_unsafe()?;
        if let Some(owner) = self.graph_memory.get(&address).map(|found| found.device) {
            let device = self.current()?;
            self.complete_device(device)?;
            if self.devices[owner].ordinal != self.devices[device].ordinal {
                self.complete_device(owner)?;
            }
            if !self.graph_memory.get(&address).is_some_and(|found| found.is_live) {
                return Err(invalid(Rule::GraphMemoryState));
            }
            let freed = self.devices[owner].memory.free(address);
            freed.map_err(|error| memory_refusal(&error))?;
            return self.record_graph_memory(address, false);
        }
        if self.free_hosted(address)? {
            return Ok(());
        }
        let known = self.allocations.get(&address).filter(|known| !known.is_freed);
        let Some(owner) = known.map(|known| known.device) else {
            self.refuse_lost()?;
            return Err(invalid(Rule::MemoryUnknown));
        };
        self.complete_device(owner)?;
        self.return_to_pool(address);
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
        base.write_unless_null(0);
        bytes.write_unless_null(0);
        let device = self.current()?;
        if base.is_null() && bytes.is_null() {
            return Ok(());
        }
        let found = self.devices[device].memory.allocation_of(address);
        let unknown = refuse(CUresult::CUDA_ERROR_NOT_FOUND, Rule::MemoryRange);
        let (start, size) = found.ok_or(unknown)?;
        base.write_unless_null(start);
        bytes.write_unless_null(size as usize);
        Ok(())
    }
}
