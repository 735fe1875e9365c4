//! Copies of a run of bytes.
//!
//! Where a copy takes effect follows the chapter "API synchronization behavior" of the driver's
//! manual, at its loosest: pinned memory is read and written when the copy runs; pageable memory is
//! read at the call, also by a synchronous copy, whose bytes may land on the device after the call
//! has returned; and a copy into pageable memory is complete when the call returns.

use std::ffi::c_void;

use retrograph_driver_sys::*;

use crate::argument::{Call, In, Out};
use crate::refusal::{Refusal, refuse};
use crate::state::{Route, State, memory_refusal};
use crate::work::{Copy, Operation, TaskId, Work};

pub(super) const LEGACY: CUstream = CUstream::NULL;

/// Whether a call waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
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

    pub(super) fn submit_copy(
        &mut self,
        given: CUDA_MEMCPY3D,
        stream: CUstream,
        wait: Wait,
    ) -> Call {
        if given.WidthInBytes == 0 {
            return self.route(stream).map(|_| ());
        }
        let captured = matches!(self.route(stream)?, Route::Capture(..));
        let (copy, is_pageable_target) = match captured {
            true => (self.lasting_copy(&given)?, false),
            false => self.immediate_copy(&given)?,
        };
        if is_pageable_target {
            return self.copy_to_pageable(&copy, stream);
        }
        let task = self.submit(stream, Operation::Copy(copy))?;
        match (task, wait) {
            (Some(task), Wait::Complete) => self.complete(vec![task]),
            _ => Ok(()),
        }
    }

    /// Copies into memory that is not pinned: through pinned memory, before the call returns.
    fn copy_to_pageable(&mut self, copy: &Copy, stream: CUstream) -> Call {
        let device = self.device_of_stream(stream)?;
        let pending = match self.route(stream)? {
            Route::Queue(stream) => self.pending(stream)?,
            Route::Capture(..) => {
                let code = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
                return Err(refuse(code, "copies.copy_to_pageable"));
            }
        };
        self.complete(pending)?;
        copy.run(&self.devices[device].memory).map_err(|error| memory_refusal(&error))
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

    pub(crate) fn cuMemcpy(&mut self, dst: CUdeviceptr, src: CUdeviceptr, bytes: usize) -> Call {
        self.current()?;
        self.refuse_blocking_copy()?;
        let given = self.unified(dst, src, bytes)?;
        self.submit_copy(given, LEGACY, Wait::AsDocumented)
    }

    pub(crate) fn cuMemcpyAsync(
        &mut self,
        dst: CUdeviceptr,
        src: CUdeviceptr,
        bytes: usize,
        stream: CUstream,
    ) -> Call {
        self.resolve(stream)?;
        let given = self.unified(dst, src, bytes)?;
        self.submit_copy(given, stream, Wait::AsDocumented)
    }

    /// A copy between addresses of any kind: what is not of a device is of the host.
    fn unified(
        &mut self,
        dst: CUdeviceptr,
        src: CUdeviceptr,
        bytes: usize,
    ) -> Result<CUDA_MEMCPY3D, Refusal> {
        let device = self.current_even_lost().unwrap_or_default();
        let kind = |address| match self.on_device(device, address, 1) {
            true => CUmemorytype::CU_MEMORYTYPE_DEVICE,
            false => CUmemorytype::CU_MEMORYTYPE_HOST,
        };
        Ok(CUDA_MEMCPY3D {
            srcMemoryType: kind(src),
            srcHost: std::ptr::with_exposed_provenance(src as usize),
            dstMemoryType: kind(dst),
            dstHost: std::ptr::with_exposed_provenance_mut(dst as usize),
            ..CUDA_MEMCPY3D::device_to_device(dst, src, bytes)
        })
    }

    /// Synchronous copies use the legacy stream. That they wait is no reason to refuse them while
    /// another stream is captured.
    pub(super) fn refuse_blocking_copy(&mut self) -> Call {
        self.route(LEGACY).map(|_| ())
    }
}
