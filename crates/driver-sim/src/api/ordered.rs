//! Device memory in stream order.

use retrograph_driver_sys::*;

use crate::argument::{Call, Out};
use crate::refusal::invalid;
use crate::state::{Route, State};
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
                address.demand()?;
                let base = self.allocate(bytes)?;
                address.put(base)
            }
            Route::Capture(..) => Err(self.unsupported("allocation nodes are not simulated")),
        }
    }

    pub(crate) fn cuMemFreeAsync(&mut self, address: CUdeviceptr, stream: CUstream) -> Call {
        match self.route(stream)? {
            Route::Queue(_) if address == 0 => Ok(()),
            Route::Queue(_) if !self.allocations.contains_key(&address) => {
                Err(invalid("memory.unknown"))
            }
            Route::Queue(stream) => self.enqueue(stream, Work::Free(address)).map(|_| ()),
            Route::Capture(..) => Err(self.unsupported("free nodes are not simulated")),
        }
    }
}
