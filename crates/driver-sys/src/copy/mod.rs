//! Parameters of copies of rectangles and boxes.

mod batch;

use std::ffi::c_void;

use crate::handle::{CUarray, CUcontext};
use crate::memory::{CUdeviceptr, CUmemorytype};
use crate::structure::{structures, zeroed};

pub use batch::*;
pub(crate) use batch::{ENUMERATIONS, FLAGS, LAYOUTS as BATCHES};

structures! {
    /// A copy of a rectangle of bytes: `WidthInBytes` × `Height`.
    ///
    /// The memory type of each side selects which of its addresses is used.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CUDA_MEMCPY2D {
        /// First byte of the source row.
        pub srcXInBytes: usize,
        /// First row of the source.
        pub srcY: usize,
        /// The kind of memory of the source.
        pub srcMemoryType: CUmemorytype,
        /// Source in host memory.
        pub srcHost: *const c_void,
        /// Source in device memory.
        pub srcDevice: CUdeviceptr,
        /// Source array.
        pub srcArray: CUarray,
        /// Bytes from one source row to the next.
        pub srcPitch: usize,
        /// First byte of the destination row.
        pub dstXInBytes: usize,
        /// First row of the destination.
        pub dstY: usize,
        /// The kind of memory of the destination.
        pub dstMemoryType: CUmemorytype,
        /// Destination in host memory.
        pub dstHost: *mut c_void,
        /// Destination in device memory.
        pub dstDevice: CUdeviceptr,
        /// Destination array.
        pub dstArray: CUarray,
        /// Bytes from one destination row to the next.
        pub dstPitch: usize,
        /// Bytes in a row.
        pub WidthInBytes: usize,
        /// Rows.
        pub Height: usize,
    }

    /// A copy of a box of bytes: `WidthInBytes` × `Height` × `Depth`.
    ///
    /// The memory type of each side selects which of its addresses is used.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CUDA_MEMCPY3D {
        /// First byte of the source row.
        pub srcXInBytes: usize,
        /// First row of the source.
        pub srcY: usize,
        /// First slice of the source.
        pub srcZ: usize,
        /// Level of detail of the source; must be 0.
        pub srcLOD: usize,
        /// The kind of memory of the source.
        pub srcMemoryType: CUmemorytype,
        /// Source in host memory.
        pub srcHost: *const c_void,
        /// Source in device memory.
        pub srcDevice: CUdeviceptr,
        /// Source array.
        pub srcArray: CUarray,
        /// Must be null.
        pub reserved0: *mut c_void,
        /// Bytes from one source row to the next.
        pub srcPitch: usize,
        /// Rows from one source slice to the next.
        pub srcHeight: usize,
        /// First byte of the destination row.
        pub dstXInBytes: usize,
        /// First row of the destination.
        pub dstY: usize,
        /// First slice of the destination.
        pub dstZ: usize,
        /// Level of detail of the destination; must be 0.
        pub dstLOD: usize,
        /// The kind of memory of the destination.
        pub dstMemoryType: CUmemorytype,
        /// Destination in host memory.
        pub dstHost: *mut c_void,
        /// Destination in device memory.
        pub dstDevice: CUdeviceptr,
        /// Destination array.
        pub dstArray: CUarray,
        /// Must be null.
        pub reserved1: *mut c_void,
        /// Bytes from one destination row to the next.
        pub dstPitch: usize,
        /// Rows from one destination slice to the next.
        pub dstHeight: usize,
        /// Bytes in a row.
        pub WidthInBytes: usize,
        /// Rows in a slice.
        pub Height: usize,
        /// Slices.
        pub Depth: usize,
    }

    /// A copy of a box of bytes between memory of two contexts.
    ///
    /// The memory type of each side selects which of its addresses is used.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CUDA_MEMCPY3D_PEER {
        /// First byte of the source row.
        pub srcXInBytes: usize,
        /// First row of the source.
        pub srcY: usize,
        /// First slice of the source.
        pub srcZ: usize,
        /// Level of detail of the source; must be 0.
        pub srcLOD: usize,
        /// The kind of memory of the source.
        pub srcMemoryType: CUmemorytype,
        /// Source in host memory.
        pub srcHost: *const c_void,
        /// Source in device memory.
        pub srcDevice: CUdeviceptr,
        /// Source array.
        pub srcArray: CUarray,
        /// The context of the source.
        pub srcContext: CUcontext,
        /// Bytes from one source row to the next.
        pub srcPitch: usize,
        /// Rows from one source slice to the next.
        pub srcHeight: usize,
        /// First byte of the destination row.
        pub dstXInBytes: usize,
        /// First row of the destination.
        pub dstY: usize,
        /// First slice of the destination.
        pub dstZ: usize,
        /// Level of detail of the destination; must be 0.
        pub dstLOD: usize,
        /// The kind of memory of the destination.
        pub dstMemoryType: CUmemorytype,
        /// Destination in host memory.
        pub dstHost: *mut c_void,
        /// Destination in device memory.
        pub dstDevice: CUdeviceptr,
        /// Destination array.
        pub dstArray: CUarray,
        /// The context of the destination.
        pub dstContext: CUcontext,
        /// Bytes from one destination row to the next.
        pub dstPitch: usize,
        /// Rows from one destination slice to the next.
        pub dstHeight: usize,
        /// Bytes in a row.
        pub WidthInBytes: usize,
        /// Rows in a slice.
        pub Height: usize,
        /// Slices.
        pub Depth: usize,
    }
}

zeroed! { CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER }

impl CUDA_MEMCPY3D {
    /// A copy of `bytes` contiguous bytes with source and destination unset.
    const fn row(bytes: usize) -> Self {
        Self {
            srcXInBytes: 0,
            srcY: 0,
            srcZ: 0,
            srcLOD: 0,
            srcMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
            srcHost: std::ptr::null(),
            srcDevice: 0,
            srcArray: CUarray::NULL,
            reserved0: std::ptr::null_mut(),
            srcPitch: bytes,
            srcHeight: 1,
            dstXInBytes: 0,
            dstY: 0,
            dstZ: 0,
            dstLOD: 0,
            dstMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
            dstHost: std::ptr::null_mut(),
            dstDevice: 0,
            dstArray: CUarray::NULL,
            reserved1: std::ptr::null_mut(),
            dstPitch: bytes,
            dstHeight: 1,
            WidthInBytes: bytes,
            Height: 1,
            Depth: 1,
        }
    }

    /// A copy of `bytes` contiguous bytes of device memory.
    pub const fn device_to_device(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize) -> Self {
        Self { srcDevice: src, dstDevice: dst, ..Self::row(bytes) }
    }

    /// A copy of `bytes` contiguous bytes from host memory to device memory.
    pub const fn host_to_device(dst: CUdeviceptr, src: *const c_void, bytes: usize) -> Self {
        let srcMemoryType = CUmemorytype::CU_MEMORYTYPE_HOST;
        Self { srcMemoryType, srcHost: src, dstDevice: dst, ..Self::row(bytes) }
    }

    /// A copy of `bytes` contiguous bytes from device memory to host memory.
    pub const fn device_to_host(dst: *mut c_void, src: CUdeviceptr, bytes: usize) -> Self {
        let dstMemoryType = CUmemorytype::CU_MEMORYTYPE_HOST;
        Self { dstMemoryType, dstHost: dst, srcDevice: src, ..Self::row(bytes) }
    }
}
