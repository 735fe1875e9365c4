//! Arrays: creation, descriptors, and copies of rows.
//!
//! Textures and surfaces are not simulated, so only copies use arrays.

use std::ffi::c_void;

use retrograph_driver_sys::*;

use super::array_forms::is_possible;
use super::copies::Wait;
use crate::argument::{Call, In, Out};
use crate::refusal::{Refusal, Rule, invalid};
use crate::state::{Array, State, element_bytes, memory_refusal};

/// Flags of arrays whose memory the program maps.
const MAPPED_FLAGS: u32 = CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING;
/// The flags that hardware accepts, among them an unnamed one.
const FLAGS: u32 = CUDA_ARRAY3D_LAYERED
    | CUDA_ARRAY3D_SURFACE_LDST
    | CUDA_ARRAY3D_CUBEMAP
    | CUDA_ARRAY3D_TEXTURE_GATHER
    | MAPPED_FLAGS
    | CUDA_ARRAY3D_VIDEO_ENCODE_DECODE
    | 1 << 31;

/// Whether it is an image format of cuda.h 13.0. The simulator has those with [`element_bytes`].
fn is_other_format(format: CUarray_format) -> bool {
    matches!(format.0, 0x50 | 0x91..=0x9f | 0xa1..=0xa9 | 0xb0..=0xb5 | 0xc0..=0xcb)
}

/// An extent as hardware reads it: modulo 2^32.
fn extent(given: usize) -> usize {
    given as u32 as usize
}

/// The source or destination of a copy: the first row of an array from an offset on. The nodes of
/// captured copies have no pitch and height.
#[derive(Clone, Copy)]
struct RowOf(CUarray, usize);

impl RowOf {
    /// Sets it as the source of a copy.
    fn as_source(self, given: CUDA_MEMCPY3D) -> CUDA_MEMCPY3D {
        CUDA_MEMCPY3D {
            srcMemoryType: CUmemorytype::CU_MEMORYTYPE_ARRAY,
            srcArray: self.0,
            srcXInBytes: self.1,
            ..without_strides(given)
        }
    }

    /// Sets it as the destination of a copy.
    fn as_target(self, given: CUDA_MEMCPY3D) -> CUDA_MEMCPY3D {
        CUDA_MEMCPY3D {
            dstMemoryType: CUmemorytype::CU_MEMORYTYPE_ARRAY,
            dstArray: self.0,
            dstXInBytes: self.1,
            ..without_strides(given)
        }
    }
}

/// The parameters without pitches and heights.
pub(super) fn without_strides(given: CUDA_MEMCPY3D) -> CUDA_MEMCPY3D {
    CUDA_MEMCPY3D { srcPitch: 0, srcHeight: 0, dstPitch: 0, dstHeight: 0, ..given }
}

impl State {
    pub(crate) fn cuArrayCreate_v2(
        &mut self,
        array: Out<CUarray>,
        descriptor: In<CUDA_ARRAY_DESCRIPTOR>,
    ) -> Call {
        let device = self.current()?;
        self.refuse_unsafe()?;
        array.require()?;
        let CUDA_ARRAY_DESCRIPTOR { Width, Height, Format, NumChannels } = descriptor.get()?;
        let given =
            CUDA_ARRAY3D_DESCRIPTOR { Width, Height, Format, NumChannels, ..Default::default() };
        self.create_array(device, array, given)
    }

    pub(crate) fn cuArray3DCreate_v2(
        &mut self,
        array: Out<CUarray>,
        descriptor: In<CUDA_ARRAY3D_DESCRIPTOR>,
    ) -> Call {
        let device = self.current()?;
        self.refuse_unsafe()?;
        array.require()?;
        self.create_array(device, array, descriptor.get()?)
    }

    fn create_array(
        &mut self,
        device: usize,
        output: Out<CUarray>,
        given: CUDA_ARRAY3D_DESCRIPTOR,
    ) -> Call {
        let CUDA_ARRAY3D_DESCRIPTOR { Format, NumChannels, Flags, .. } = given;
        if Flags & !FLAGS != 0 {
            return Err(invalid(Rule::ArrayFlags));
        }
        let is_known = element_bytes(Format, NumChannels).is_some();
        if Flags & MAPPED_FLAGS != 0 || (!is_known && is_other_format(Format)) {
            let kind = format!("{Format:?}, channels: {NumChannels}, flags: {Flags:#x}");
            return Err(self.unsupported(format!("arrays of {kind}")));
        }
        if !is_known {
            return Err(invalid(Rule::ArrayFormat));
        }
        let [Width, Height, Depth] = [given.Width, given.Height, given.Depth].map(extent);
        let descriptor = CUDA_ARRAY3D_DESCRIPTOR { Width, Height, Depth, ..given };
        if !is_possible(&descriptor) {
            return Err(invalid(Rule::ArrayExtent));
        }
        let mut array = Array { device, address: 0, descriptor };
        let allocated = self.devices[device].memory.alloc(array.bytes());
        array.address = allocated.map_err(|error| memory_refusal(&error))?;
        let handle = self.handle();
        self.arrays.insert(handle, array);
        output.write(handle)
    }

    pub(crate) fn cuArrayGetDescriptor_v2(
        &mut self,
        descriptor: Out<CUDA_ARRAY_DESCRIPTOR>,
        array: CUarray,
    ) -> Call {
        let CUDA_ARRAY3D_DESCRIPTOR { Width, Height, Format, NumChannels, .. } =
            self.array(array)?.descriptor;
        descriptor.write(CUDA_ARRAY_DESCRIPTOR { Width, Height, Format, NumChannels })
    }

    pub(crate) fn cuArray3DGetDescriptor_v2(
        &mut self,
        descriptor: Out<CUDA_ARRAY3D_DESCRIPTOR>,
        array: CUarray,
    ) -> Call {
        let known = self.array(array)?.descriptor;
        descriptor.write(known)
    }

    pub(crate) fn cuArrayDestroy(&mut self, array: CUarray) -> Call {
        let owner = self.array(array)?.device;
        self.refuse_unsafe()?;
        // Queued work may still use the array.
        self.complete_device(owner)?;
        self.remove_array(array);
        Ok(())
    }

    /// The array of a handle. Its context need not be current.
    pub(super) fn array(&mut self, array: CUarray) -> Result<Array, Refusal> {
        self.refuse_lost()?;
        if !array.is_null() && !self.was_issued(array) {
            return Err(self.undefined("a handle that was never an array"));
        }
        self.arrays.get(array).copied()
    }

    pub(crate) fn cuMemcpyHtoA_v2(
        &mut self,
        dst: CUarray,
        offset: usize,
        src: In<c_void>,
        bytes: usize,
    ) -> Call {
        let row = RowOf(dst, offset);
        let given = row.as_target(CUDA_MEMCPY3D::host_to_device(0, src.address(), bytes));
        let stream = self.default_stream()?;
        self.submit_copy(given, stream, Wait::Complete)
    }

    pub(crate) fn cuMemcpyAtoH_v2(
        &mut self,
        dst: Out<c_void>,
        src: CUarray,
        offset: usize,
        bytes: usize,
    ) -> Call {
        let row = RowOf(src, offset);
        let given = row.as_source(CUDA_MEMCPY3D::device_to_host(dst.pointer(), 0, bytes));
        let stream = self.default_stream()?;
        self.submit_copy(given, stream, Wait::Complete)
    }

    pub(crate) fn cuMemcpyDtoA_v2(
        &mut self,
        dst: CUarray,
        offset: usize,
        src: CUdeviceptr,
        bytes: usize,
    ) -> Call {
        let row = RowOf(dst, offset);
        let given = row.as_target(CUDA_MEMCPY3D::device_to_device(0, src, bytes));
        let stream = self.default_stream()?;
        self.submit_copy(given, stream, Wait::AsDocumented)
    }

    pub(crate) fn cuMemcpyAtoD_v2(
        &mut self,
        dst: CUdeviceptr,
        src: CUarray,
        offset: usize,
        bytes: usize,
    ) -> Call {
        let row = RowOf(src, offset);
        let given = row.as_source(CUDA_MEMCPY3D::device_to_device(dst, 0, bytes));
        let stream = self.default_stream()?;
        self.submit_copy(given, stream, Wait::AsDocumented)
    }

    pub(crate) fn cuMemcpyAtoA_v2(
        &mut self,
        dst: CUarray,
        dst_offset: usize,
        src: CUarray,
        src_offset: usize,
        bytes: usize,
    ) -> Call {
        let (target, source) = (RowOf(dst, dst_offset), RowOf(src, src_offset));
        let given = CUDA_MEMCPY3D::device_to_device(0, 0, bytes);
        let given = target.as_target(source.as_source(given));
        let stream = self.default_stream()?;
        self.submit_copy(given, stream, Wait::AsDocumented)
    }

    pub(crate) fn cuMemcpyHtoAAsync_v2(
        &mut self,
        dst: CUarray,
        offset: usize,
        src: In<c_void>,
        bytes: usize,
        stream: CUstream,
    ) -> Call {
        let row = RowOf(dst, offset);
        let given = row.as_target(CUDA_MEMCPY3D::host_to_device(0, src.address(), bytes));
        self.submit_copy(given, stream, Wait::AsDocumented)
    }

    pub(crate) fn cuMemcpyAtoHAsync_v2(
        &mut self,
        dst: Out<c_void>,
        src: CUarray,
        offset: usize,
        bytes: usize,
        stream: CUstream,
    ) -> Call {
        let row = RowOf(src, offset);
        let given = row.as_source(CUDA_MEMCPY3D::device_to_host(dst.pointer(), 0, bytes));
        self.submit_copy(given, stream, Wait::AsDocumented)
    }
}
