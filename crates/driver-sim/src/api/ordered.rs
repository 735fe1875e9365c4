//! Device memory in stream order.

use retrograph_driver_sys::*;

use crate::argument::{Call, Out};
use crate::refusal::invalid;
use crate::state::{NodeKind, Route, State};
use crate::work::Work;

impl State {
    pub(crate) fn cuMemAllocAsync(
        &mut self,
        address: Out<CUdeviceptr>,
        bytes: usize,
        stream: CUstream,
    ) -> Call {
        match self.route(stream)? {
            Route::Queue(_) => {
                self.refuse_unsafe()?;
                address.demand()?;
                let base = self.allocate(bytes)?;
                address.put(base)
            }
            Route::Capture(stream, capture) => {
                address.demand()?;
                let device = self.streams.get(stream)?.device;
                let base = self.reserve(device, bytes as u64)?;
                self.capture_node((stream, capture), NodeKind::Alloc(base))?;
                address.put(base)
            }
        }
    }

    pub(crate) fn cuMemFreeAsync(&mut self, address: CUdeviceptr, stream: CUstream) -> Call {
        match self.route(stream)? {
            Route::Queue(_) if address == 0 => Ok(()),
            Route::Queue(stream) if self.graph_memory.contains_key(&address) => {
                self.note_graph_memory(address, false)?;
                self.enqueue(stream, Work::Free(address)).map(|_| ())
            }
            Route::Queue(_) if !self.allocations.contains_key(&address) => {
                Err(invalid("memory.unknown"))
            }
            Route::Queue(stream) => self.enqueue(stream, Work::Free(address)).map(|_| ()),
            Route::Capture(..) if !self.graph_memory.contains_key(&address) => {
                Err(invalid("memory.not_captured"))
            }
            Route::Capture(stream, capture) => {
                self.capture_node((stream, capture), NodeKind::Free(address)).map(|_| ())
            }
        }
    }
}
