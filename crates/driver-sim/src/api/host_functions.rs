//! Host functions in streams.

use std::ffi::c_void;

use retrograph_driver_sys::*;

use crate::argument::{Call, Out};
use crate::refusal::{Rule, invalid};
use crate::state::State;
use crate::work::{HostCall, HostTarget, Operation, Work};

impl State {
    pub(crate) fn cuLaunchHostFunc(
        &mut self,
        stream: CUstream,
        function: CUhostFn,
        data: Out<c_void>,
    ) -> Call {
        let function = function.ok_or(invalid(Rule::HostNull))?;
        let call = HostCall { target: HostTarget::Function(function), data: data.pointer() };
        self.submit(stream, Operation::Host(call))
    }

    pub(crate) fn cuStreamAddCallback(
        &mut self,
        stream: CUstream,
        callback: CUstreamCallback,
        data: Out<c_void>,
        flags: u32,
    ) -> Call {
        let resolved = self.resolve(stream)?;
        let callback = callback.ok_or(invalid(Rule::HostNull))?;
        if flags != 0 {
            return Err(invalid(Rule::HostFlags));
        }
        // Stream callbacks cannot be captured, unlike host functions.
        self.refuse_captured(resolved)?;
        self.route(stream)?;
        let target = HostTarget::Callback(callback, stream);
        let call = HostCall { target, data: data.pointer() };
        self.enqueue(resolved, Work::Operation(Operation::Host(call))).map(|_| ())
    }
}
