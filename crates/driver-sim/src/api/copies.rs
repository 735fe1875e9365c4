//! Copies and fills.
//!
//! Where a copy takes effect follows the chapter "API synchronization behavior" of the driver's
//! manual, at its loosest: pinned memory is read and written when the copy runs; pageable memory is
//! read at the call, also by a synchronous copy, whose bytes may land on the device after the call
//! has returned; and a copy into pageable memory is complete when the call returns.

use std::ffi::c_void;

use retrograph_driver_sys::*;

use crate::argument::{Admit, Call, In, Out};
use crate::refusal::{Refusal, invalid, refuse};
use crate::state::{Route, State, memory_refusal};
use crate::work::{Copy, End, Fill, Operation, TaskId, Work};

const LEGACY: CUstream = CUstream::NULL;

/// Whether a call waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// As far as the kind of copy demands.
    AsDocumented,
    /// Until the operation is complete.
    Complete,
}

impl State {
    /// Queues or captures an operation; gives the task if it was queued.
    pub(super) fn submit(
        &mut self,
        stream: CUstream,
        operation: Operation,
    ) -> Result<Option<TaskId>, Refusal> {
        match self.route(stream)? {
            Route::Queue(stream) => self.enqueue(stream, Work::Operation(operation)).map(Some),
            Route::Capture(stream, capture) => {
                self.capture_operation((stream, capture), operation)?;
                Ok(None)
            }
        }
    }

    fn submit_copy(&mut self, given: CUDA_MEMCPY3D, stream: CUstream, wait: Wait) -> Call {
        if given.WidthInBytes == 0 {
            return self.route(stream).map(|_| ());
        }
        let captured = matches!(self.route(stream)?, Route::Capture(..));
        let (copy, pageable_target) = match captured {
            true => (self.lasting_copy(&given)?, None),
            false => self.immediate_copy(&given)?,
        };
        if let Some(target) = pageable_target {
            return self.copy_to_pageable(copy, target, stream);
        }
        let task = self.submit(stream, Operation::Copy(copy))?;
        match (task, wait) {
            (Some(task), Wait::Complete) => self.complete(vec![task]),
            _ => Ok(()),
        }
    }

    /// Copies into memory that is not pinned: through pinned memory, before the call returns.
    fn copy_to_pageable(&mut self, copy: Copy, target: *mut c_void, stream: CUstream) -> Call {
        let device = self.current()?;
        let pending = match self.route(stream)? {
            Route::Queue(stream) => self.pending(stream)?,
            Route::Capture(..) => {
                return Err(refuse(
                    CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                    "copies.copy_to_pageable",
                ));
            }
        };
        self.complete(pending)?;
        let End::Device(source) = copy.source else {
            return Err(invalid("copies.copy_to_pageable.2"));
        };
        let mut bytes = vec![0; copy.given.WidthInBytes];
        let read = self.devices[device].memory.read(source, &mut bytes);
        read.map_err(|error| memory_refusal(&error))?;
        // SAFETY: the caller guarantees that the target of the copy is valid for its bytes.
        unsafe { target.admit() }.write_bytes(&bytes)
    }

    pub(crate) fn cuMemcpyHtoD_v2(
        &mut self,
        dst: CUdeviceptr,
        src: In<c_void>,
        bytes: usize,
    ) -> Call {
        self.current()?;
        self.refuse_blocking_copy()?;
        // From pinned memory the call waits. From pageable memory it may return when the bytes are
        // staged, and only the legacy stream and those that wait for it are behind the copy.
        let pinned = self.pinned_at(src.address().addr(), bytes).is_some();
        let wait = if pinned { Wait::Complete } else { Wait::AsDocumented };
        self.submit_copy(CUDA_MEMCPY3D::host_to_device(dst, src.address(), bytes), LEGACY, wait)
    }

    pub(crate) fn cuMemcpyDtoH_v2(
        &mut self,
        dst: Out<c_void>,
        src: CUdeviceptr,
        bytes: usize,
    ) -> Call {
        self.current()?;
        self.refuse_blocking_copy()?;
        let given = CUDA_MEMCPY3D::device_to_host(dst.pointer(), src, bytes);
        self.submit_copy(given, LEGACY, Wait::Complete)
    }

    pub(crate) fn cuMemcpyDtoD_v2(
        &mut self,
        dst: CUdeviceptr,
        src: CUdeviceptr,
        bytes: usize,
    ) -> Call {
        let given = CUDA_MEMCPY3D::device_to_device(dst, src, bytes);
        self.submit_copy(given, LEGACY, Wait::AsDocumented)
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

    pub(crate) fn cuMemcpyAsync(
        &mut self,
        dst: CUdeviceptr,
        src: CUdeviceptr,
        bytes: usize,
        stream: CUstream,
    ) -> Call {
        let device = self.current()?;
        let host = |address| !self.on_device(device, address, 1);
        let from = std::ptr::with_exposed_provenance(src as usize);
        let to = std::ptr::with_exposed_provenance_mut(dst as usize);
        let given = match (host(src), host(dst)) {
            (false, false) => CUDA_MEMCPY3D::device_to_device(dst, src, bytes),
            (true, false) => CUDA_MEMCPY3D::host_to_device(dst, from, bytes),
            (false, true) => CUDA_MEMCPY3D::device_to_host(to, src, bytes),
            (true, true) => {
                return Err(self.unsupported("copies between two pageable places"));
            }
        };
        self.submit_copy(given, stream, Wait::AsDocumented)
    }

    /// Synchronous copies use the legacy stream and wait, so both must be allowed.
    fn refuse_blocking_copy(&mut self) -> Call {
        self.route(LEGACY)?;
        self.refuse_unsafe()
    }

    fn submit_fill(&mut self, fill: Fill, stream: CUstream) -> Call {
        if fill.0.width == 0 {
            return self.route(stream).map(|_| ());
        }
        self.check_fill(&fill)?;
        self.submit(stream, Operation::Fill(fill)).map(|_| ())
    }

    pub(crate) fn cuMemsetD8_v2(&mut self, dst: CUdeviceptr, value: u8, count: usize) -> Call {
        self.submit_fill(Fill::row(dst, 1, u32::from(value), count), LEGACY)
    }

    pub(crate) fn cuMemsetD32_v2(&mut self, dst: CUdeviceptr, value: u32, count: usize) -> Call {
        self.submit_fill(Fill::row(dst, 4, value, count), LEGACY)
    }

    pub(crate) fn cuMemsetD8Async(
        &mut self,
        dst: CUdeviceptr,
        value: u8,
        count: usize,
        stream: CUstream,
    ) -> Call {
        self.submit_fill(Fill::row(dst, 1, u32::from(value), count), stream)
    }

    pub(crate) fn cuMemsetD32Async(
        &mut self,
        dst: CUdeviceptr,
        value: u32,
        count: usize,
        stream: CUstream,
    ) -> Call {
        self.submit_fill(Fill::row(dst, 4, value, count), stream)
    }
}
