//! Access to the memory of other devices, and copies between devices.
//!
//! Every simulated device can access every other one. Access is enabled per context, but the device
//! then has access from all of its contexts.

use retrograph_driver_sys::*;

use crate::argument::{Call, Out};
use crate::refusal::{Refusal, Rule, invalid, refuse};
use crate::state::{Route, State};
use crate::work::{PeerCopy, PeerEnd, Work};

/// `CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK` of the best link.
const BEST_RANK: i32 = 0;

impl State {
    pub(crate) fn cuDeviceCanAccessPeer(
        &mut self,
        can_access: Out<i32>,
        device: CUdevice,
        peer: CUdevice,
    ) -> Call {
        can_access.require()?;
        let (device, peer) = (self.device_index(device)?, self.device_index(peer)?);
        can_access.write(i32::from(device != peer))
    }

    pub(crate) fn cuDeviceGetP2PAttribute(
        &mut self,
        value: Out<i32>,
        attribute: CUdevice_P2PAttribute,
        device: CUdevice,
        peer: CUdevice,
    ) -> Call {
        value.require()?;
        let (device, peer) = (self.device_index(device)?, self.device_index(peer)?);
        if device == peer {
            return Err(refuse(CUresult::CUDA_ERROR_INVALID_DEVICE, Rule::PeerSame));
        }
        use CUdevice_P2PAttribute as A;
        value.write(match attribute {
            A::CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK => BEST_RANK,
            A::CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED
            | A::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED => 1,
            // Arrays are not simulated, and every atomic operation is native.
            A::CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED
            | A::CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED => 0,
            _ => return Err(invalid(Rule::PeerAttribute)),
        })
    }

    pub(crate) fn cuCtxEnablePeerAccess(&mut self, peer: CUcontext, flags: u32) -> Call {
        let device = self.current()?;
        let other = self.peer_of(device, peer)?;
        if flags != 0 {
            return Err(invalid(Rule::PeerFlags));
        }
        let enabled = CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
        if !self.devices[device].peers.insert(other) {
            return Err(refuse(enabled, Rule::PeerEnabled));
        }
        self.devices[device].memory.enable_peer(&self.devices[other].memory);
        Ok(())
    }

    pub(crate) fn cuCtxDisablePeerAccess(&mut self, peer: CUcontext) -> Call {
        let device = self.current()?;
        let other = self.peer_of(device, peer)?;
        let disabled = CUresult::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
        if !self.devices[device].peers.contains(&other) {
            return Err(refuse(disabled, Rule::PeerNotEnabled));
        }
        // Queued work may still use the access.
        self.complete_device(device)?;
        self.end_peer_access(device, other);
        Ok(())
    }

    /// The index of a peer context, which must be on another device than `device`.
    fn peer_of(&mut self, device: usize, peer: CUcontext) -> Result<usize, Refusal> {
        let other = self.context_of_copy(peer)?;
        if self.devices[other].ordinal == self.devices[device].ordinal {
            return Err(refuse(CUresult::CUDA_ERROR_INVALID_DEVICE, Rule::PeerSame));
        }
        Ok(other)
    }

    fn context_of_copy(&mut self, context: CUcontext) -> Result<usize, Refusal> {
        if context.is_null() {
            return Err(refuse(CUresult::CUDA_ERROR_INVALID_CONTEXT, Rule::PeerNoContext));
        }
        self.named_or_current(context)
    }

    pub(crate) fn cuMemcpyPeer(
        &mut self,
        target: CUdeviceptr,
        target_context: CUcontext,
        source: CUdeviceptr,
        source_context: CUcontext,
        bytes: usize,
    ) -> Call {
        self.current()?;
        let ends = [(target, target_context), (source, source_context)];
        let copy = self.peer_copy(ends, bytes)?;
        // The copy is ordered with all work of both contexts.
        for (_, context) in ends {
            let device = self.context_of_copy(context)?;
            self.complete_device(device)?;
        }
        match self.route(super::copies::LEGACY)? {
            Route::Queue(stream) => self.run_now(stream, Work::PeerCopy(copy)),
            Route::Capture(..) => Err(self.captured_peer_copy()),
        }
    }

    pub(crate) fn cuMemcpyPeerAsync(
        &mut self,
        target: CUdeviceptr,
        target_context: CUcontext,
        source: CUdeviceptr,
        source_context: CUcontext,
        bytes: usize,
        stream: CUstream,
    ) -> Call {
        let ends = [(target, target_context), (source, source_context)];
        let copy = self.peer_copy(ends, bytes)?;
        match self.route(stream)? {
            Route::Queue(stream) => self.enqueue(stream, Work::PeerCopy(copy)).map(|_| ()),
            Route::Capture(..) => Err(self.captured_peer_copy()),
        }
    }

    fn captured_peer_copy(&mut self) -> Refusal {
        self.unsupported("captured copies between devices")
    }

    /// A copy between two contexts. Source and destination must each be in one allocation of the
    /// context's device.
    fn peer_copy(
        &mut self,
        [target, source]: [(CUdeviceptr, CUcontext); 2],
        bytes: usize,
    ) -> Result<PeerCopy, Refusal> {
        let mut end = |(address, context)| {
            let device = self.context_of_copy(context)?;
            let memory = self.devices[device].memory.clone();
            let fits = memory.allocation_of(address);
            let fits = fits.is_some_and(|(base, len)| bytes as u64 <= len - (address - base));
            match bytes == 0 || fits {
                true => Ok(PeerEnd { memory, address }),
                false => Err(invalid(Rule::PeerCopyExtent)),
            }
        };
        Ok(PeerCopy { target: end(target)?, source: end(source)?, bytes })
    }
}
