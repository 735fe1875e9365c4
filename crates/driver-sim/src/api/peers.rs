//! Access to the memory of other devices, and copies between devices.
//!
//! Every simulated device can access every other one. Access is enabled per context, but the device
//! then has access from all of its contexts. Copies need no access: the driver finds both ends by
//! their addresses.

use retrograph_driver_sys::*;

use super::copies::Wait;
use crate::argument::{Call, In, Out};
use crate::refusal::{Refusal, Rule, invalid, refuse};
use crate::state::{Route, State};

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
            | A::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED
            | A::CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED => 1,
            // Every atomic operation is native.
            A::CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED => 0,
            _ => return Err(invalid(Rule::PeerAttribute)),
        })
    }

    pub(crate) fn cuCtxEnablePeerAccess(&mut self, peer: CUcontext, flags: u32) -> Call {
        let device = self.current()?;
        let other = self.peer(peer)?;
        if flags != 0 {
            return Err(invalid(Rule::PeerFlags));
        }
        self.refuse_unsafe()?;
        if self.devices[other].ordinal == self.devices[device].ordinal {
            return Err(refuse(CUresult::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, Rule::PeerSame));
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
        let other = self.peer(peer)?;
        self.refuse_unsafe()?;
        let disabled = CUresult::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
        if !self.devices[device].peers.contains(&other) {
            return Err(refuse(disabled, Rule::PeerNotEnabled));
        }
        // Queued work may still use the access.
        self.complete_device(device)?;
        self.end_peer_access(device, other);
        Ok(())
    }

    /// The index of a peer context.
    fn peer(&mut self, peer: CUcontext) -> Result<usize, Refusal> {
        if peer.is_null() {
            return Err(refuse(CUresult::CUDA_ERROR_INVALID_CONTEXT, Rule::PeerNoContext));
        }
        self.named_or_current(peer).map_err(|refusal| match refusal.rule {
            Rule::ContextUnknown => {
                refuse(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED, Rule::ContextDestroyed)
            }
            _ => refusal,
        })
    }

    pub(crate) fn cuMemcpyPeer(
        &mut self,
        target: CUdeviceptr,
        target_context: CUcontext,
        source: CUdeviceptr,
        source_context: CUcontext,
        bytes: usize,
    ) -> Call {
        let stream = self.serialized([target_context, source_context])?;
        let given = self.linear(target, source, bytes);
        self.submit_peer_copy(given, stream, Wait::Complete)
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
        self.check_contexts([target_context, source_context])?;
        let given = self.linear(target, source, bytes);
        self.submit_peer_copy(given, stream, Wait::AsDocumented)
    }

    pub(crate) fn cuMemcpy3DPeer(&mut self, given: In<CUDA_MEMCPY3D_PEER>) -> Call {
        self.current()?;
        let given = self.peer_box(given)?;
        let stream = self.serialized([given.dstContext, given.srcContext])?;
        self.submit_peer_copy(without_contexts(&given), stream, Wait::Complete)
    }

    pub(crate) fn cuMemcpy3DPeerAsync(
        &mut self,
        given: In<CUDA_MEMCPY3D_PEER>,
        stream: CUstream,
    ) -> Call {
        let given = self.peer_box(given)?;
        self.check_contexts([given.dstContext, given.srcContext])?;
        self.submit_peer_copy(without_contexts(&given), stream, Wait::AsDocumented)
    }

    fn peer_box(&mut self, given: In<CUDA_MEMCPY3D_PEER>) -> Result<CUDA_MEMCPY3D_PEER, Refusal> {
        match given.is_null() {
            true => Err(self.undefined("the parameters of a copy are read through null")),
            false => given.get(),
        }
    }

    /// A linear copy of device or pinned host memory.
    fn linear(&self, target: CUdeviceptr, source: CUdeviceptr, bytes: usize) -> CUDA_MEMCPY3D {
        let mut given = CUDA_MEMCPY3D::device_to_device(target, source, bytes);
        if self.pinned_at(source as usize, bytes).is_some() {
            given.srcMemoryType = CUmemorytype::CU_MEMORYTYPE_HOST;
            given.srcHost = std::ptr::with_exposed_provenance(source as usize);
        }
        if self.pinned_at(target as usize, bytes).is_some() {
            given.dstMemoryType = CUmemorytype::CU_MEMORYTYPE_HOST;
            given.dstHost = std::ptr::with_exposed_provenance_mut(target as usize);
        }
        given
    }

    /// Checks the contexts that a copy names. The driver finds memory by its address, whichever
    /// contexts are named, but it dereferences them.
    fn check_contexts(&mut self, contexts: [CUcontext; 2]) -> Call {
        let known = contexts.into_iter().filter(|context| !context.is_null());
        let mut known = known.map(|context| self.named_or_current(context).map(|_| ()));
        match known.find_map(Result::err) {
            Some(refusal) if refusal.rule == Rule::ContextUnknown => {
                Err(self.undefined("a copy names a context that was destroyed"))
            }
            Some(refusal) => Err(refusal),
            None => Ok(()),
        }
    }

    /// The stream of a synchronous copy, which is ordered with all work of the contexts that it
    /// names.
    fn serialized(&mut self, contexts: [CUcontext; 2]) -> Result<CUstream, Refusal> {
        self.current()?;
        self.check_contexts(contexts)?;
        for context in contexts {
            let device = self.named_or_current(context)?;
            self.complete_device(device)?;
        }
        self.default_stream()
    }

    /// Queues a copy between devices. A capture cannot contain it.
    fn submit_peer_copy(&mut self, given: CUDA_MEMCPY3D, stream: CUstream, wait: Wait) -> Call {
        match self.route(stream)? {
            Route::Queue(_) => self.submit_box(given, stream, wait),
            Route::Capture(_, capture) => {
                let reason = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
                Err(self.invalidate_capture(capture, reason))
            }
        }
    }
}

fn without_contexts(given: &CUDA_MEMCPY3D_PEER) -> CUDA_MEMCPY3D {
    CUDA_MEMCPY3D {
        srcXInBytes: given.srcXInBytes,
        srcY: given.srcY,
        srcZ: given.srcZ,
        srcLOD: given.srcLOD,
        srcMemoryType: given.srcMemoryType,
        srcHost: given.srcHost,
        srcDevice: given.srcDevice,
        srcArray: given.srcArray,
        srcPitch: given.srcPitch,
        srcHeight: given.srcHeight,
        dstXInBytes: given.dstXInBytes,
        dstY: given.dstY,
        dstZ: given.dstZ,
        dstLOD: given.dstLOD,
        dstMemoryType: given.dstMemoryType,
        dstHost: given.dstHost,
        dstDevice: given.dstDevice,
        dstArray: given.dstArray,
        dstPitch: given.dstPitch,
        dstHeight: given.dstHeight,
        WidthInBytes: given.WidthInBytes,
        Height: given.Height,
        Depth: given.Depth,
        ..Default::default()
    }
}
