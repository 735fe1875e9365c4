//! Device memory and host memory: addresses, flags, and attributes of addresses.

use crate::enumeration::{enumerations, flags};

/// An address in device memory.
pub type CUdeviceptr = u64;

flags! {
    /// Flags of `cuMemHostAlloc`.
    CUmemHostAlloc_flags: u32 {
        /// Pinned for every context.
        CU_MEMHOSTALLOC_PORTABLE = 1;
        /// Mapped into device addresses.
        CU_MEMHOSTALLOC_DEVICEMAP = 2;
        /// Write-combined: fast transfers, slow host reads.
        CU_MEMHOSTALLOC_WRITECOMBINED = 4;
    }

    /// Flags of `cuMemHostRegister_v2`.
    CUmemHostRegister_flags: u32 {
        /// Pinned for every context.
        CU_MEMHOSTREGISTER_PORTABLE = 1;
        /// Mapped into device addresses.
        CU_MEMHOSTREGISTER_DEVICEMAP = 2;
        /// I/O memory of another device.
        CU_MEMHOSTREGISTER_IOMEMORY = 4;
        /// Only read by the device.
        CU_MEMHOSTREGISTER_READ_ONLY = 8;
    }
}

enumerations! {
    /// The kind of memory of one end of a copy.
    CUmemorytype: u32 {
        /// Host memory.
        CU_MEMORYTYPE_HOST = 1;
        /// Device memory.
        CU_MEMORYTYPE_DEVICE = 2;
        /// A CUDA array.
        CU_MEMORYTYPE_ARRAY = 3;
        /// An address whose kind the driver determines.
        CU_MEMORYTYPE_UNIFIED = 4;
    }

    /// Attributes of `cuPointerGetAttribute`.
    CUpointer_attribute: u32 {
        /// The context, as `CUcontext`.
        CU_POINTER_ATTRIBUTE_CONTEXT = 1;
        /// The kind of memory, as [`CUmemorytype`].
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2;
        /// The address for kernels, as [`CUdeviceptr`].
        CU_POINTER_ATTRIBUTE_DEVICE_POINTER = 3;
        /// The address for the host, as a pointer.
        CU_POINTER_ATTRIBUTE_HOST_POINTER = 4;
        /// Deprecated: two tokens for a kernel module of another vendor.
        CU_POINTER_ATTRIBUTE_P2P_TOKENS = 5;
        /// Whether synchronous operations on the memory always wait, as `u32`; can be set.
        CU_POINTER_ATTRIBUTE_SYNC_MEMOPS = 6;
        /// An identifier that is unique among all allocations of the process, as `u64`.
        CU_POINTER_ATTRIBUTE_BUFFER_ID = 7;
        /// Whether the memory is managed, as `u32`.
        CU_POINTER_ATTRIBUTE_IS_MANAGED = 8;
        /// The device, as `i32`.
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9;
        /// Whether `cuIpcGetMemHandle` works, as `u32`.
        CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE = 10;
        /// The first address of the allocation, as [`CUdeviceptr`].
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR = 11;
        /// The size of the allocation, as `usize`.
        CU_POINTER_ATTRIBUTE_RANGE_SIZE = 12;
        /// Whether the address is mapped, as `u32`.
        CU_POINTER_ATTRIBUTE_MAPPED = 13;
        /// The kinds of handles that the memory can be exported as, as `u64` of flags.
        CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES = 14;
        /// Whether GPUDirect RDMA works on the memory, as `u32`.
        CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE = 15;
        /// How the device may access the memory: 0 not at all, 1 reading, 3 reading and writing.
        CU_POINTER_ATTRIBUTE_ACCESS_FLAGS = 16;
        /// The pool, as `CUmemoryPool`, or null.
        CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE = 17;
        /// The size of the mapping, as `usize`.
        CU_POINTER_ATTRIBUTE_MAPPING_SIZE = 18;
        /// The first address of the mapping, as [`CUdeviceptr`].
        CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR = 19;
        /// An identifier of the physical memory, as `u64`.
        CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID = 20;
        /// Whether the decompression engine can use the memory, as `u32`.
        CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE = 21 since 12080;
    }
}
