//! Stream-ordered allocation (`cuMemAllocAsync`, `cuMemFreeAsync`).

use retrograph_driver_sys::*;

use crate::argument::{Call, Out};
use crate::refusal::{Refusal, Rule, invalid};
use crate::state::{NodeKind, Route, State};
use crate::work::Work;

impl State {
    /// The device of a stream's context.
    pub(super) fn device_of_stream(&mut self, stream: CUstream) -> Result<usize, Refusal> {
        let stream = self.resolve(stream)?;
        Ok(self.streams.get(stream)?.device)
    }

    pub(crate) fn cuMemAllocAsync(
        &mut self,
        address: Out<CUdeviceptr>,
        bytes: usize,
        stream: CUstream,
    ) -> Call {
        address.offer(0);
        let device = self.device_of_stream(stream)?;
        let ordinal = self.devices[device].ordinal;
        let pool = match self.current_pools.get(&ordinal) {
            Some(pool) => *pool,
            None => self.default_pool(ordinal),
        };
        self.allocate_ordered(address, bytes, pool, stream)
    }

    pub(crate) fn cuMemAllocFromPoolAsync(
        &mut self,
        address: Out<CUdeviceptr>,
        bytes: usize,
        pool: CUmemoryPool,
        stream: CUstream,
    ) -> Call {
        address.offer(0);
        self.allocate_ordered(address, bytes, pool, stream)
    }

    fn allocate_ordered(
        &mut self,
        address: Out<CUdeviceptr>,
        bytes: usize,
        pool: CUmemoryPool,
        stream: CUstream,
    ) -> Call {
        let device = self.device_of_stream(stream)?;
        let route = self.route(stream)?;
        if let Route::Queue(_) = route {
            self.refuse_unsafe()?;
        }
        self.pool(pool)?;
        address.demand()?;
        if bytes == 0 {
            return Ok(());
        }
        match route {
            Route::Queue(_) => {
                let base = self.allocate(device, bytes, Some(pool))?;
                if let Err(refusal) = self.take_from_pool(pool, bytes as u64) {
                    self.allocations.remove(&base);
                    // It was allocated above.
                    let _ = self.devices[device].memory.free(base);
                    return Err(refusal);
                }
                address.put(base)
            }
            Route::Capture(stream, capture) => {
                let base = self.reserve(device, bytes as u64)?;
                self.capture_node((stream, capture), NodeKind::Alloc(base))?;
                address.put(base)
            }
        }
    }

    pub(crate) fn cuMemFreeAsync(&mut self, address: CUdeviceptr, stream: CUstream) -> Call {
        match self.route(stream)? {
            Route::Queue(_) if address == 0 => self.refuse_unsafe(),
            Route::Queue(stream) if self.graph_memory.contains_key(&address) => {
                self.record_graph_memory(address, false)?;
                self.enqueue(stream, Work::Free(address)).map(|_| ())
            }
            Route::Queue(stream) => {
                let known = self.allocations.get_mut(&address).filter(|known| !known.is_freed);
                known.ok_or(invalid(Rule::MemoryUnknown))?.is_freed = true;
                self.enqueue(stream, Work::Free(address)).map(|_| ())
            }
            Route::Capture(..) if address == 0 => Ok(()),
            Route::Capture(..) if !self.graph_memory.contains_key(&address) => {
                Err(invalid(Rule::MemoryNotCaptured))
            }
            Route::Capture(stream, capture) => {
                self.refuse_freed(self.captures[&capture].graph, address)?;
                self.capture_node((stream, capture), NodeKind::Free(address)).map(|_| ())
            }
        }
    }
}
