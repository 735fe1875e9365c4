//! Conversion of the arguments of copies and fills to operations.

use std::ffi::c_void;

use retrograph_driver_sys::*;

use crate::argument::{Admit, Call, In};
use crate::refusal::{Refusal, Rule, invalid};
use crate::state::State;
use crate::work::{Copy, End, Fill, Strides};

/// The source or destination of a copy, as its parameters describe it.
#[derive(Clone, Copy)]
struct CopyEnd {
    kind: CUmemorytype,
    host: *mut c_void,
    device: CUdeviceptr,
    array: CUarray,
    /// The mipmap level of an array.
    level: usize,
    /// The first byte, row and slice.
    start: [usize; 3],
    /// Bytes of a row, rows and slices.
    extent: [usize; 3],
    bytes: usize,
}

/// The host address of a side of a copy. A unified address is in the field for device addresses.
fn host_of(kind: CUmemorytype, host: *mut c_void, device: CUdeviceptr) -> *mut c_void {
    match kind {
        CUmemorytype::CU_MEMORYTYPE_UNIFIED => {
            std::ptr::with_exposed_provenance_mut(device as usize)
        }
        _ => host,
    }
}

impl State {
    /// Source and destination of a copy. Checks only their extents.
    fn ends(&self, given: &CUDA_MEMCPY3D) -> Result<(CopyEnd, CopyEnd), Refusal> {
        let (source_bytes, target_bytes) =
            Copy::extent(given).ok_or(invalid(Rule::ParametersEnds))?;
        let extent = [given.WidthInBytes, given.Height, given.Depth];
        let source = CopyEnd {
            kind: given.srcMemoryType,
            host: host_of(given.srcMemoryType, given.srcHost.cast_mut(), given.srcDevice),
            device: given.srcDevice,
            array: given.srcArray,
            level: given.srcLOD,
            start: [given.srcXInBytes, given.srcY, given.srcZ],
            extent,
            bytes: source_bytes,
        };
        let target = CopyEnd {
            kind: given.dstMemoryType,
            host: host_of(given.dstMemoryType, given.dstHost, given.dstDevice),
            device: given.dstDevice,
            array: given.dstArray,
            level: given.dstLOD,
            start: [given.dstXInBytes, given.dstY, given.dstZ],
            extent,
            bytes: target_bytes,
        };
        Ok((source, target))
    }

    /// The current device, even if lost. Calls that name a context also work without a current one.
    pub(super) fn usable_device(&mut self) -> Result<usize, Refusal> {
        match self.current_even_lost() {
            Err(refusal) if refusal.code == CUresult::CUDA_ERROR_INVALID_CONTEXT => {
                let known = self.devices.iter().position(|device| device.context.is_some());
                known.ok_or(refusal)
            }
            other => other,
        }
    }

    /// The source or destination in device or pinned memory; `None` for pageable memory. Device
    /// memory may be on any device: addresses are unified.
    fn end(&mut self, given: CopyEnd) -> Result<Option<End>, Refusal> {
        let device = self.usable_device()?;
        let device = self.device_at(device, given.device).unwrap_or(device);
        match given.kind {
            // Even if the device has access to it.
            CUmemorytype::CU_MEMORYTYPE_DEVICE if self.is_of_host_pool(given.device) => {
                Err(invalid(Rule::CopyHostPool))
            }
            CUmemorytype::CU_MEMORYTYPE_DEVICE => {
                match self.on_device(device, given.device, given.bytes as u64) {
                    true => Ok(Some(End::Device(given.device))),
                    false => Err(invalid(Rule::ParametersEnd)),
                }
            }
            CUmemorytype::CU_MEMORYTYPE_HOST | CUmemorytype::CU_MEMORYTYPE_UNIFIED => {
                self.host_end(device, &given)
            }
            CUmemorytype::CU_MEMORYTYPE_ARRAY if given.array.is_null() => {
                Err(invalid(Rule::CopyNoArray))
            }
            CUmemorytype::CU_MEMORYTYPE_ARRAY => self.array_end(&given).map(Some),
            _ => Err(invalid(Rule::ParametersEnd3)),
        }
    }

    /// The source or destination at a host or unified address; `None` for pageable memory.
    fn host_end(&self, device: usize, given: &CopyEnd) -> Result<Option<End>, Refusal> {
        if given.host.is_null() {
            return Err(invalid(Rule::ParametersEnd2));
        }
        let address = given.host.addr();
        if self.pinned_at(address, given.bytes).is_some() {
            return Ok(Some(End::Host(address)));
        }
        // Addresses are unified: the driver recognizes a device address.
        if self.on_any_device(device, address as u64, given.bytes as u64) {
            return Ok(Some(End::Device(address as u64)));
        }
        // A range that starts in pinned memory must end there.
        let known = self.pinned_at(address, 1).is_some();
        if known || self.on_any_device(device, address as u64, 1) {
            return Err(invalid(Rule::CopyExtent));
        }
        Ok(None)
    }

    /// The source or destination in an array: bytes within bounds.
    fn array_end(&mut self, given: &CopyEnd) -> Result<End, Refusal> {
        let array = self.array(given.array)?;
        if given.level != 0 {
            return Err(invalid(Rule::ArrayLevel));
        }
        let mut ranges = given.start.into_iter().zip(given.extent).zip(array.extent());
        let fits = |((start, extent), most): ((usize, usize), usize)| {
            start.checked_add(extent).is_some_and(|end| end <= most)
        };
        if !ranges.all(fits) {
            return Err(invalid(Rule::ArrayBounds));
        }
        let [pitch, height, _] = array.extent();
        Ok(End::Array(array.address, Strides { pitch, height }))
    }

    /// The copy of a node, which may run later and repeatedly.
    pub(super) fn lasting_copy(&mut self, given: &CUDA_MEMCPY3D) -> Result<Copy, Refusal> {
        let (source, target) = self.ends(given)?;
        let pageable = |end: CopyEnd| End::Pageable(end.host.expose_provenance());
        let source = self.end(source)?.unwrap_or_else(|| pageable(source));
        let target = self.end(target)?.unwrap_or_else(|| pageable(target));
        Ok(Copy { given: Box::new(*given), source, target })
    }

    /// A copy to queue, and whether its destination is pageable memory, which must be written
    /// before the call returns. Reads a pageable source now.
    pub(super) fn immediate_copy(
        &mut self,
        given: &CUDA_MEMCPY3D,
    ) -> Result<(Copy, bool), Refusal> {
        let (source, target) = self.ends(given)?;
        let source = match self.end(source)? {
            Some(end) => end,
            None => {
                // SAFETY: the caller guarantees that the source of the copy is valid for its bytes.
                let host: In<c_void> = unsafe { source.host.cast_const().admit() };
                End::Snapshot(host.bytes(source.bytes)?.into())
            }
        };
        let known = self.end(target)?;
        let is_pageable = known.is_none();
        let target = known.unwrap_or(End::Host(target.host.expose_provenance()));
        Ok((Copy { given: Box::new(*given), source, target }, is_pageable))
    }

    /// Checks a fill: its element size, alignment and extent.
    pub(super) fn check_fill(&self, fill: &Fill) -> Call {
        let is_inside = |bytes| self.on_device(fill.device, fill.given.dst, bytes);
        match fill.is_aligned() && fill.extent().is_some_and(is_inside) {
            true => Ok(()),
            false => Err(invalid(Rule::FillTarget)),
        }
    }
}
