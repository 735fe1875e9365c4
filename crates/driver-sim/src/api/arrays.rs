//! Arrays: creation, descriptors, and copies of rows.
//!
//! Textures and surfaces are not simulated, so only copies use arrays.

use std::ffi::c_void;

use retrograph_driver_sys::*;

use super::array_forms::is_possible;
use super::copies::{LEGACY, Wait};
use crate::argument::{Call, In, Out};
use crate::refusal::{Refusal, Rule, invalid};
use crate::state::{Array, State, channel_bytes, memory_refusal};

/// The supported flags of arrays.
const FLAGS: u32 = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_CUBEMAP;
/// All flags of cuda.h 13.0.
const KNOWN_FLAGS: u32 = 0x1ff;

/// Whether the format is in cuda.h 13.0 but is not simulated.
fn is_other_format(format: CUarray_format) -> bool {
    matches!(format.0, 0x50 | 0x91..=0x9f | 0xa1..=0xa9 | 0xb0..=0xb5 | 0xc0..=0xcb)
}

/// The source or destination of a copy: a row of an array from an offset on.
#[derive(Clone, Copy)]
struct RowOf(CUarray, usize);

impl RowOf {
    /// Sets it as the source of a copy.
    fn as_source(self, given: CUDA_MEMCPY3D) -> CUDA_MEMCPY3D {
        CUDA_MEMCPY3D {
            srcMemoryType: CUmemorytype::CU_MEMORYTYPE_ARRAY,
            srcArray: self.0,
            srcXInBytes: self.1,
            ..given
        }
    }

    /// Sets it as the destination of a copy.
    fn as_target(self, given: CUDA_MEMCPY3D) -> CUDA_MEMCPY3D {
        CUDA_MEMCPY3D {
            dstMemoryType: CUmemorytype::CU_MEMORYTYPE_ARRAY,
            dstArray: self.0,
            dstXInBytes: self.1,
            ..given
        }
    }
}

impl State {
    pub(crate) fn cuArrayCreate_v2(
        &mut self,
        array: Out<CUarray>,
        descriptor: In<CUDA_ARRAY_DESCRIPTOR>,
    ) -> Call {
        let device = self.current()?;
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
        array.require()?;
        self.create_array(device, array, descriptor.get()?)
    }

    fn create_array(
        &mut self,
        device: usize,
        output: Out<CUarray>,
        descriptor: CUDA_ARRAY3D_DESCRIPTOR,
    ) -> Call {
        self.refuse_unsafe()?;
        let CUDA_ARRAY3D_DESCRIPTOR { Format, NumChannels, Flags, .. } = descriptor;
        if is_other_format(Format) || (Flags & KNOWN_FLAGS & !FLAGS != 0) {
            let message = format!("arrays of format {Format:?} with flags {Flags:#x}");
            return Err(self.unsupported(message));
        }
        if channel_bytes(Format).is_none() || !matches!(NumChannels, 1 | 2 | 4) {
            return Err(invalid(Rule::ArrayFormat));
        }
        if Flags & !KNOWN_FLAGS != 0 {
            return Err(invalid(Rule::ArrayFlags));
        }
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
        descriptor.require()?;
        let CUDA_ARRAY3D_DESCRIPTOR { Width, Height, Depth, Format, NumChannels, Flags } =
            self.array(array)?.descriptor;
        if Depth != 0 || Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP) != 0 {
            return Err(self.unsupported("the descriptor without depth of an array with depth"));
        }
        descriptor.write(CUDA_ARRAY_DESCRIPTOR { Width, Height, Format, NumChannels })
    }

    pub(crate) fn cuArray3DGetDescriptor_v2(
        &mut self,
        descriptor: Out<CUDA_ARRAY3D_DESCRIPTOR>,
        array: CUarray,
    ) -> Call {
        descriptor.require()?;
        let known = self.array(array)?.descriptor;
        descriptor.write(known)
    }

    pub(crate) fn cuArrayDestroy(&mut self, array: CUarray) -> Call {
        self.refuse_unsafe()?;
        let owner = self.array(array)?.device;
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

    /// Fails if an array has more than one row: the call's offsets are within one row.
    fn check_row(&mut self, RowOf(array, _): RowOf) -> Call {
        let CUDA_ARRAY3D_DESCRIPTOR { Height, Depth, .. } = self.array(array)?.descriptor;
        match (Height, Depth) {
            (0, 0) => Ok(()),
            _ => Err(self.unsupported("a copy by offset in an array of several rows")),
        }
    }

    fn copy_rows<const N: usize>(
        &mut self,
        rows: [RowOf; N],
        given: CUDA_MEMCPY3D,
        (stream, wait): (CUstream, Wait),
    ) -> Call {
        rows.into_iter().try_for_each(|row| self.check_row(row))?;
        self.submit_copy(given, stream, wait)
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
        self.copy_rows([row], given, (LEGACY, Wait::Complete))
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
        self.copy_rows([row], given, (LEGACY, Wait::Complete))
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
        self.copy_rows([row], given, (LEGACY, Wait::AsDocumented))
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
        self.copy_rows([row], given, (LEGACY, Wait::AsDocumented))
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
        self.copy_rows([target, source], given, (LEGACY, Wait::AsDocumented))
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
        self.copy_rows([row], given, (stream, Wait::AsDocumented))
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
        self.copy_rows([row], given, (stream, Wait::AsDocumented))
    }
}
