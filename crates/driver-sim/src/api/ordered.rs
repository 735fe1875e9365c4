//! Stream-ordered allocation (`cuMemAllocAsync`, `cuMemFreeAsync`).

use retrograph_driver_sys::*;

use crate::argument::{Call, Out};
use crate::refusal::{Refusal, Rule, invalid, refuse};
use crate::state::{Location, NodeKind, Pinned, PoolKind, Route, State};
use crate::work::Work;

impl State {
    /// The device of a stream's context.
    pub(super) fn device_of_stream(&mut self, stream: CUstream) -> Result<usize, Refusal> {
        let stream = self.resolve(stream)?;
        Ok(self.streams.get(stream)?.device)
    }

    /// The device whose memory a pool has. `device` is the device of the stream.
    fn device_of_pool(&self, kind: PoolKind, device: usize) -> usize {
        match kind.location {
            // A context of the same device stays the owner.
            Location::Device(ordinal) if ordinal != self.devices[device].ordinal => ordinal,
            _ => device,
        }
    }

    pub(crate) fn cuMemAllocAsync(
        &mut self,
        address: Out<CUdeviceptr>,
        bytes: usize,
        stream: CUstream,
    ) -> Call {
        address.write_unless_null(0);
        let device = self.device_of_stream(stream)?;
        let ordinal = self.devices[device].ordinal;
        let pool = self.current_pool(PoolKind::of_device(ordinal));
        self.allocate_ordered(address, bytes, pool, stream)
    }

    pub(crate) fn cuMemAllocFromPoolAsync(
        &mut self,
        address: Out<CUdeviceptr>,
        bytes: usize,
        pool: CUmemoryPool,
        stream: CUstream,
    ) -> Call {
        address.write_unless_null(0);
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
        let kind = self.pool(pool)?.kind;
        let device = self.device_of_pool(kind, device);
        address.require()?;
        if bytes == 0 {
            return Ok(());
        }
        match route {
            Route::Queue(_) if kind.is_hosted() => {
                let base = self.allocate_hosted(device, bytes, pool)?;
                address.write(base as u64)
            }
            Route::Capture(..) if kind.is_hosted() => Err(match kind.is_managed {
                true => invalid(Rule::PoolCaptured),
                false => refuse(CUresult::CUDA_ERROR_NOT_SUPPORTED, Rule::PoolCaptured),
            }),
            Route::Queue(_) => {
                let base = self.allocate(device, bytes, Some(pool))?;
                if let Err(refusal) = self.take_from_pool(pool, bytes as u64) {
                    self.allocations.remove(&base);
                    // The memory was allocated above, so this cannot fail.
                    let _ = self.devices[device].memory.free(base);
                    return Err(refusal);
                }
                address.write(base)
            }
            Route::Capture(stream, capture) => {
                let base = self.reserve(device, bytes as u64)?;
                self.capture_node(stream, capture, NodeKind::Alloc(base))?;
                address.write(base)
            }
        }
    }

    /// Allocates from a host pool or a managed pool.
    fn allocate_hosted(
        &mut self,
        device: usize,
        bytes: usize,
        pool: CUmemoryPool,
    ) -> Result<usize, Refusal> {
        let found = self.pool(pool)?;
        let (kind, granted) = (found.kind, found.granted.clone());
        let memory = Pinned::pooled(bytes, device, pool, kind)?;
        self.take_from_pool(pool, bytes as u64)?;
        if kind.is_managed {
            return self.pin(memory);
        }
        let ordinals = granted.into_iter().filter_map(|location| match location {
            Location::Device(ordinal) => Some(ordinal),
            _ => None,
        });
        self.pin_on(ordinals, memory)
    }

    pub(crate) fn cuMemFreeAsync(&mut self, address: CUdeviceptr, stream: CUstream) -> Call {
        match self.route(stream)? {
            Route::Queue(_) if address == 0 => self.refuse_unsafe(),
            Route::Queue(stream) if self.graph_memory.contains_key(&address) => {
                self.record_graph_memory(address, false)?;
                self.enqueue(stream, Work::Free(address)).map(|_| ())
            }
            Route::Queue(stream) => {
                let pooled = self.pinned.get_mut(&(address as usize));
                let pooled = pooled.filter(|known| known.pool.is_some());
                let is_freed = match pooled {
                    Some(known) => Some(&mut known.is_freed),
                    None => self.allocations.get_mut(&address).map(|known| &mut known.is_freed),
                };
                let known = is_freed.filter(|is_freed| !**is_freed);
                *known.ok_or(invalid(Rule::MemoryUnknown))? = true;
                self.enqueue(stream, Work::Free(address)).map(|_| ())
            }
            Route::Capture(..) if address == 0 => Ok(()),
            Route::Capture(..) if !self.graph_memory.contains_key(&address) => {
                Err(invalid(Rule::MemoryNotCaptured))
            }
            Route::Capture(stream, capture) => {
                self.refuse_freed(self.captures[&capture].graph, address)?;
                self.capture_node(stream, capture, NodeKind::Free(address)).map(|_| ())
            }
        }
    }
}
