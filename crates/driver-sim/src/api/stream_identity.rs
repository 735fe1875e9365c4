//! Queries of a stream's flags, priority, id, context and device.

use retrograph_driver_sys::*;

use crate::argument::{Call, Out};
use crate::refusal::Refusal;
use crate::state::State;

impl State {
    /// The stream of a query. Fails if it is captured; for the legacy stream, if a blocking stream
    /// is captured.
    fn known(&mut self, stream: CUstream) -> Result<CUstream, Refusal> {
        let resolved = self.resolve(stream)?;
        self.refuse_captured(resolved)?;
        if self.is_legacy(resolved) {
            self.refuse_legacy_stream(resolved)?;
        }
        Ok(resolved)
    }

    pub(crate) fn cuStreamGetFlags(&mut self, stream: CUstream, flags: Out<u32>) -> Call {
        let resolved = self.known(stream)?;
        flags.write(self.streams.get(resolved)?.flags)
    }

    pub(crate) fn cuStreamGetPriority(&mut self, stream: CUstream, priority: Out<i32>) -> Call {
        self.route(stream)?;
        let resolved = self.resolve(stream)?;
        priority.write(self.streams.get(resolved)?.priority)
    }

    pub(crate) fn cuStreamGetId(&mut self, stream: CUstream, id: Out<u64>) -> Call {
        let resolved = self.known(stream)?;
        id.write(self.streams.get(resolved)?.id)
    }

    pub(crate) fn cuStreamGetCtx(&mut self, stream: CUstream, context: Out<CUcontext>) -> Call {
        self.route(stream)?;
        let resolved = self.resolve(stream)?;
        let device = self.streams.get(resolved)?.device;
        context.write(self.devices[device].context.unwrap_or(CUcontext::NULL))
    }

    pub(crate) fn cuStreamGetDevice(&mut self, stream: CUstream, device: Out<CUdevice>) -> Call {
        let resolved = self.known(stream)?;
        let index = self.streams.get(resolved)?.device;
        device.write(i32::try_from(index).unwrap_or(i32::MAX))
    }
}
