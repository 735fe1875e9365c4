//! Virtual memory: properties of physical memory.

use std::ffi::c_void;

use crate::enumeration::{enumerations, flags};
use crate::location::{CUmemAllocationHandleType, CUmemAllocationType, CUmemLocation};
use crate::structure::{structures, zeroed};

/// Physical memory created by `cuMemCreate`: a number, not a pointer.
pub type CUmemGenericAllocationHandle = u64;

flags! {
    /// Flags in the `usage` of [`CUmemAllocationProp`].
    CUmemCreate_usage: u16 {
        /// Memory for the tiles of sparse arrays.
        CU_MEM_CREATE_USAGE_TILE_POOL = 1;
        /// Memory that the decompression engine can use.
        CU_MEM_CREATE_USAGE_HW_DECOMPRESS = 2 since 12080;
    }

    /// Flags of `cuMemGetHandleForAddressRange`.
    CUmemRangeFlags: u64 {
        /// A dma-buf that is mapped over PCIe.
        CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE = 1 since 12080;
    }
}

enumerations! {
    /// The granularity that `cuMemGetAllocationGranularity` writes.
    CUmemAllocationGranularity_flags: u32 {
        /// The minimum.
        CU_MEM_ALLOC_GRANULARITY_MINIMUM = 0;
        /// The one with the best performance.
        CU_MEM_ALLOC_GRANULARITY_RECOMMENDED = 1;
    }

    /// The kind of handle of a range of addresses.
    CUmemRangeHandleType: u32 {
        /// A descriptor of a dma-buf.
        CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD = 1;
    }

    /// The compression of memory.
    CUmemAllocationCompType: u32 {
        /// Not compressed.
        CU_MEM_ALLOCATION_COMP_NONE = 0;
        /// May be compressed.
        CU_MEM_ALLOCATION_COMP_GENERIC = 1;
    }
}

structures! {
    /// Further properties of physical memory.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CUmemAllocationProp_allocFlags {
        /// A [`CUmemAllocationCompType`] in one byte.
        pub compressionType: u8,
        /// Whether to support GPUDirect RDMA: 0 or 1.
        pub gpuDirectRDMACapable: u8,
        /// Flags `CU_MEM_CREATE_USAGE_…`.
        pub usage: u16,
        /// Zeros.
        pub reserved: [u8; 4],
    }

    /// Properties of new physical memory.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CUmemAllocationProp {
        /// The kind of memory.
        pub r#type: CUmemAllocationType,
        /// The kinds of handles that it can be exported as.
        pub requestedHandleTypes: CUmemAllocationHandleType,
        /// Its location.
        pub location: CUmemLocation,
        /// Attributes of a Windows handle, or null.
        pub win32HandleMetaData: *mut c_void,
        /// Further properties.
        pub allocFlags: CUmemAllocationProp_allocFlags,
    }
}

zeroed! { CUmemAllocationProp, CUmemAllocationProp_allocFlags }
