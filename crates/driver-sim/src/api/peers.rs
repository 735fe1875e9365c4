//! Access to the memory of other devices, and copies between devices.
//!
//! Every simulated device can access every other one. Access is enabled per context, but the device
//! then has access from all of its contexts.

use retrograph_driver_sys::*;

use super::boxes::check;
use super::copies::Wait;
use super::parameters::CopyContexts;
use crate::argument::{Call, In, Out};
use crate::refusal::{Refusal, Rule, invalid, refuse};
use crate::state::State;

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
        let contexts =
            self.linear_contexts([target, source], [target_context, source_context], bytes)?;
        let given = self.linear(target, source, bytes);
        self.run_peer_copy(&given, contexts)
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
        let contexts =
            self.linear_contexts([target, source], [target_context, source_context], bytes)?;
        let given = self.linear(target, source, bytes);
        self.submit_peer_copy(&given, contexts, stream, Wait::AsDocumented)
    }

    pub(crate) fn cuMemcpy3DPeer(&mut self, given: In<CUDA_MEMCPY3D_PEER>) -> Call {
        self.current()?;
        let given = given.get()?;
        let contexts = self.box_contexts(&given)?;
        self.run_peer_copy(&without_contexts(&given), contexts)
    }

    pub(crate) fn cuMemcpy3DPeerAsync(
        &mut self,
        given: In<CUDA_MEMCPY3D_PEER>,
        stream: CUstream,
    ) -> Call {
        let given = given.get()?;
        let contexts = self.box_contexts(&given)?;
        self.submit_peer_copy(&without_contexts(&given), contexts, stream, Wait::AsDocumented)
    }

    /// The contexts of a linear copy. Destination and source, in this order, must each be in one
    /// allocation of the context's device.
    fn linear_contexts(
        &mut self,
        [target, source]: [CUdeviceptr; 2],
        [target_context, source_context]: [CUcontext; 2],
        bytes: usize,
    ) -> Result<CopyContexts, Refusal> {
        let mut end = |address, context| {
            let device = self.context_of_copy(context)?;
            let fits = self.devices[device].memory.allocation_of(address);
            let fits = fits.is_some_and(|(base, len)| bytes as u64 <= len - (address - base));
            match bytes == 0 || fits {
                true => Ok(device),
                false => Err(invalid(Rule::PeerCopyExtent)),
            }
        };
        let target = end(target, target_context)?;
        Ok(CopyContexts { source: end(source, source_context)?, target })
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

    /// The contexts of a 3D copy.
    fn box_contexts(&mut self, given: &CUDA_MEMCPY3D_PEER) -> Result<CopyContexts, Refusal> {
        let mut end = |kind, context: CUcontext, array: CUarray| match kind {
            CUmemorytype::CU_MEMORYTYPE_ARRAY if array.is_null() => Err(invalid(Rule::CopyNoArray)),
            // An array belongs to a context.
            CUmemorytype::CU_MEMORYTYPE_ARRAY => Ok(self.array(array)?.device),
            CUmemorytype::CU_MEMORYTYPE_HOST if context.is_null() => self.usable_device(),
            _ => self.context_of_copy(context),
        };
        let target = end(given.dstMemoryType, given.dstContext, given.dstArray)?;
        let source = end(given.srcMemoryType, given.srcContext, given.srcArray)?;
        let given = without_contexts(given);
        if !is_empty(&given) {
            check(&given)?;
        }
        Ok(CopyContexts { source, target })
    }

    /// Runs a copy that is ordered with all work of both contexts.
    fn run_peer_copy(&mut self, given: &CUDA_MEMCPY3D, contexts: CopyContexts) -> Call {
        for device in [contexts.target, contexts.source] {
            self.complete_device(device)?;
        }
        let stream = self.default_stream()?;
        self.submit_peer_copy(given, contexts, stream, Wait::Complete)
    }

    fn submit_peer_copy(
        &mut self,
        given: &CUDA_MEMCPY3D,
        contexts: CopyContexts,
        stream: CUstream,
        wait: Wait,
    ) -> Call {
        let route = self.route(stream)?;
        match is_empty(given) {
            true => Ok(()),
            false => self.copy_between(route, given, Some(contexts), wait),
        }
    }
}

fn is_empty(given: &CUDA_MEMCPY3D) -> bool {
    [given.WidthInBytes, given.Height, given.Depth].contains(&0)
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
