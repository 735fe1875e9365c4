//! Linear copies.
//!
//! A copy takes effect as late as the chapter "API synchronization behavior" of the driver's manual
//! allows: pinned memory is read and written when the copy runs. Pageable memory is read at the
//! call, even if a synchronous copy reaches the device only after the call returned. A copy into
//! pageable memory is complete when the call returns.

use std::ffi::c_void;
use std::time::Instant;

use retrograph_driver_sys::*;

use super::arrays::without_strides;
use crate::argument::{Call, In, Out};
use crate::refusal::Refusal;
use crate::state::{Route, State, memory_refusal};
use crate::timeline::transfer_duration;
use crate::work::{Copy, Operation, Work};

/// How long a copy call waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// As the manual requires for the kinds of memory.
    AsDocumented,
    /// Until the operation is complete.
    Complete,
}

impl State {
    /// Queues or captures an operation.
    pub(super) fn submit(&mut self, stream: CUstream, operation: Operation) -> Call {
        match self.route(stream)? {
            Route::Queue(stream) => self.enqueue(stream, Work::Operation(operation)).map(|_| ()),
            Route::Capture(stream, capture) => self.capture_operation(stream, capture, operation),
        }
    }

    /// Queues or captures a linear copy. A synchronous copy is allowed while another stream is
    /// captured.
    pub(super) fn submit_copy(
        &mut self,
        given: CUDA_MEMCPY3D,
        stream: CUstream,
        wait: Wait,
    ) -> Call {
        let route = self.route(stream)?;
        let given = match route {
            Route::Capture(stream, _) => self.captured_parameters(stream, given)?,
            Route::Queue(_) => given,
        };
        self.copy_along(route, given, wait)
    }

    /// The parameters of the node of a captured linear copy. The driver adds pitch and height,
    /// unless the memory is of another device than the stream.
    fn captured_parameters(
        &self,
        stream: CUstream,
        given: CUDA_MEMCPY3D,
    ) -> Result<CUDA_MEMCPY3D, Refusal> {
        let device = self.streams.get(stream)?.device;
        Ok(match self.is_remote(device, &[given.dstDevice, given.srcDevice]) {
            true => without_strides(given),
            false => given,
        })
    }

    /// Whether one of the addresses is of another device.
    pub(super) fn is_remote(&self, device: usize, addresses: &[CUdeviceptr]) -> bool {
        let own = self.devices[device].ordinal;
        let mut found = addresses.iter().filter_map(|&address| self.device_at(device, address));
        found.any(|found| self.devices[found].ordinal != own)
    }

    /// Queues or captures a copy.
    pub(super) fn copy_along(&mut self, route: Route, given: CUDA_MEMCPY3D, wait: Wait) -> Call {
        if given.WidthInBytes == 0 {
            return Ok(());
        }
        let stream = match route {
            Route::Queue(stream) => stream,
            Route::Capture(stream, capture) => {
                let copy = self.lasting_copy(&given)?;
                return self.capture_operation(stream, capture, Operation::Copy(copy));
            }
        };
        let (copy, is_pageable_target) = self.immediate_copy(&given)?;
        if is_pageable_target {
            return self.copy_to_pageable(&copy, stream);
        }
        let work = Work::Operation(Operation::Copy(copy));
        match wait {
            Wait::Complete => self.run_now(stream, work),
            Wait::AsDocumented => self.enqueue(stream, work).map(|_| ()),
        }
    }

    /// Copies into pageable memory, through pinned staging memory, before the call returns.
    fn copy_to_pageable(&mut self, copy: &Copy, stream: CUstream) -> Call {
        let awaited = self.awaited(stream)?;
        self.complete(awaited)?;
        let started = Instant::now();
        let result = self.run_copy(self.streams.get(stream)?.device, copy);
        self.timeline.exclude(started.elapsed());
        let end = self.timeline.now() + transfer_duration(copy.bytes());
        self.timeline.wait_until(end);
        result.map_err(|error| memory_refusal(&error))
    }

    pub(crate) fn cuMemcpyHtoD_v2(
        &mut self,
        dst: CUdeviceptr,
        src: In<c_void>,
        bytes: usize,
    ) -> Call {
        // From pinned memory the call waits. From pageable memory it may return after staging; then
        // only the legacy stream and blocking streams are ordered after the copy.
        let pinned = self.pinned_at(src.address().addr(), bytes).is_some();
        let wait = if pinned { Wait::Complete } else { Wait::AsDocumented };
        let given = CUDA_MEMCPY3D::host_to_device(dst, src.address(), bytes);
        let stream = self.default_stream()?;
        self.submit_copy(given, stream, wait)
    }

    pub(crate) fn cuMemcpyDtoH_v2(
        &mut self,
        dst: Out<c_void>,
        src: CUdeviceptr,
        bytes: usize,
    ) -> Call {
        let given = CUDA_MEMCPY3D::device_to_host(dst.pointer(), src, bytes);
        let stream = self.default_stream()?;
        self.submit_copy(given, stream, Wait::Complete)
    }

    pub(crate) fn cuMemcpyDtoD_v2(
        &mut self,
        dst: CUdeviceptr,
        src: CUdeviceptr,
        bytes: usize,
    ) -> Call {
        let given = CUDA_MEMCPY3D::device_to_device(dst, src, bytes);
        let stream = self.default_stream()?;
        self.submit_copy(given, stream, Wait::AsDocumented)
    }

    pub(crate) fn cuMemcpyHtoDAsync_v2(
        &mut self,
        dst: CUdeviceptr,
        src: In<c_void>,
        bytes: usize,
        stream: CUstream,
    ) -> Call {
        let given = CUDA_MEMCPY3D::host_to_device(dst, src.address(), bytes);
        self.submit_copy(given, stream, Wait::AsDocumented)
    }

    pub(crate) fn cuMemcpyDtoHAsync_v2(
        &mut self,
        dst: Out<c_void>,
        src: CUdeviceptr,
        bytes: usize,
        stream: CUstream,
    ) -> Call {
        let given = CUDA_MEMCPY3D::device_to_host(dst.pointer(), src, bytes);
        self.submit_copy(given, stream, Wait::AsDocumented)
    }

    pub(crate) fn cuMemcpyDtoDAsync_v2(
        &mut self,
        dst: CUdeviceptr,
        src: CUdeviceptr,
        bytes: usize,
        stream: CUstream,
    ) -> Call {
        let given = CUDA_MEMCPY3D::device_to_device(dst, src, bytes);
        self.submit_copy(given, stream, Wait::AsDocumented)
    }

    pub(crate) fn cuMemcpy(&mut self, dst: CUdeviceptr, src: CUdeviceptr, bytes: usize) -> Call {
        let given = self.unified(dst, src, bytes);
        let stream = self.default_stream()?;
        self.submit_copy(given, stream, Wait::AsDocumented)
    }

    pub(crate) fn cuMemcpyAsync(
        &mut self,
        dst: CUdeviceptr,
        src: CUdeviceptr,
        bytes: usize,
        stream: CUstream,
    ) -> Call {
        let given = self.unified(dst, src, bytes);
        self.submit_copy(given, stream, Wait::AsDocumented)
    }

    /// A copy between unified addresses: an address outside every device is a host address. If one
    /// is of another device, the driver leaves both unified.
    fn unified(&mut self, dst: CUdeviceptr, src: CUdeviceptr, bytes: usize) -> CUDA_MEMCPY3D {
        let device = self.current_even_lost().unwrap_or_default();
        let linear = CUDA_MEMCPY3D::device_to_device(dst, src, bytes);
        if self.is_remote(device, &[dst, src]) {
            let unified = CUmemorytype::CU_MEMORYTYPE_UNIFIED;
            return CUDA_MEMCPY3D { srcMemoryType: unified, dstMemoryType: unified, ..linear };
        }
        let is_device =
            |address| self.on_any_device(device, address, 1) && !self.is_of_host_pool(address);
        let kind = |address| match is_device(address) {
            true => CUmemorytype::CU_MEMORYTYPE_DEVICE,
            false => CUmemorytype::CU_MEMORYTYPE_HOST,
        };
        CUDA_MEMCPY3D {
            srcMemoryType: kind(src),
            srcHost: std::ptr::with_exposed_provenance(src as usize),
            dstMemoryType: kind(dst),
            dstHost: std::ptr::with_exposed_provenance_mut(dst as usize),
            ..linear
        }
    }
}
