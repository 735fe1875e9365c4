//! Device memory, pinned host memory and copies.

use std::ffi::c_void;

use crate::enumeration::enumerations;
use crate::handle::CUarray;

/// An address in device memory.
pub type CUdeviceptr = u64;

/// Flag of `cuMemHostAlloc`: pinned for every context.
pub const CU_MEMHOSTALLOC_PORTABLE: u32 = 1;
/// Flag of `cuMemHostAlloc`: mapped into device addresses.
pub const CU_MEMHOSTALLOC_DEVICEMAP: u32 = 2;
/// Flag of `cuMemHostAlloc`: write-combined, so fast to send and slow to read on the host.
pub const CU_MEMHOSTALLOC_WRITECOMBINED: u32 = 4;

enumerations! {
    /// Where one end of a copy lies.
    CUmemorytype: u32 {
        /// Host memory.
        CU_MEMORYTYPE_HOST = 1;
        /// Device memory.
        CU_MEMORYTYPE_DEVICE = 2;
        /// A CUDA array.
        CU_MEMORYTYPE_ARRAY = 3;
        /// An address whose kind the driver finds out by itself.
        CU_MEMORYTYPE_UNIFIED = 4;
    }

    /// What `cuPointerGetAttribute` can be asked.
    CUpointer_attribute: u32 {
        /// The context, as `CUcontext`.
        CU_POINTER_ATTRIBUTE_CONTEXT = 1;
        /// The kind of memory, as `CUmemorytype`.
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2;
        /// The address for kernels, as `CUdeviceptr`.
        CU_POINTER_ATTRIBUTE_DEVICE_POINTER = 3;
        /// The address for the host, as a pointer.
        CU_POINTER_ATTRIBUTE_HOST_POINTER = 4;
        /// An identifier that no other allocation of the process ever has, as `u64`.
        CU_POINTER_ATTRIBUTE_BUFFER_ID = 7;
        /// Whether the memory is managed, as `u32`.
        CU_POINTER_ATTRIBUTE_IS_MANAGED = 8;
        /// The device, as `i32`.
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9;
        /// The first address of the allocation, as `CUdeviceptr`.
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR = 11;
        /// The size of the allocation, as `usize`.
        CU_POINTER_ATTRIBUTE_RANGE_SIZE = 12;
        /// Whether the address is mapped, as `u32`.
        CU_POINTER_ATTRIBUTE_MAPPED = 13;
    }
}

/// A copy of a box of bytes: `WidthInBytes` × `Height` × `Depth`.
///
/// Which of the addresses of an end counts is said by its memory type.
#[repr(C)]
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
    /// Where the source lies.
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
    /// Where the destination lies.
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

impl CUDA_MEMCPY3D {
    /// A copy of `bytes` contiguous bytes with both ends unset.
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
