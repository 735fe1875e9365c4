//! Pools of stream-ordered memory.

use std::ffi::c_void;

use crate::enumeration::{enumerations, flags};
use crate::location::{CUmemAllocationHandleType, CUmemAllocationType, CUmemLocation};
use crate::structure::{structures, zeroed};

flags! {
    /// Flags in the `usage` of [`CUmemPoolProps`].
    CUmemPool_usage: u16 {
        /// Memory that the decompression engine can use.
        CU_MEM_POOL_CREATE_USAGE_HW_DECOMPRESS = 2 since 12080;
    }
}

enumerations! {
    /// Attributes of pools.
    CUmemPool_attribute: u32 {
        /// Whether memory freed on another stream is reused if an event or a dependency orders the
        /// free before the allocation, as `i32`; 1 by default; can be set.
        CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES = 1;
        /// Whether memory is reused if its free has already completed, as `i32`; 1 by default; can
        /// be set.
        CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC = 2;
        /// Whether the driver may insert stream dependencies to reuse memory, as `i32`; 1 by
        /// default; can be set.
        CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES = 3;
        /// Bytes that the pool keeps when a synchronization would free memory, as `u64`; 0 by
        /// default; can be set.
        CU_MEMPOOL_ATTR_RELEASE_THRESHOLD = 4;
        /// Bytes that the pool reserves, as `u64`.
        CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT = 5;
        /// High watermark of reserved bytes, as `u64`; can be set to 0.
        CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH = 6;
        /// Bytes that are allocated, as `u64`.
        CU_MEMPOOL_ATTR_USED_MEM_CURRENT = 7;
        /// High watermark of allocated bytes, as `u64`; can be set to 0.
        CU_MEMPOOL_ATTR_USED_MEM_HIGH = 8;
    }
}

structures! {
    /// Properties of a pool to make.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CUmemPoolProps {
        /// The kind of memory.
        pub allocType: CUmemAllocationType,
        /// The kinds of handles that allocations can be exported as.
        pub handleTypes: CUmemAllocationHandleType,
        /// The location of the memory.
        pub location: CUmemLocation,
        /// Security attributes of a Windows handle, or null.
        pub win32SecurityAttributes: *mut c_void,
        /// Maximum bytes; 0 lets the system decide. Ignored before driver 12020.
        pub maxSize: usize,
        /// Flags `CU_MEM_POOL_CREATE_USAGE_…`. Ignored before driver 12060.
        pub usage: u16,
        /// Zeros.
        pub reserved: [u8; 54],
    }

    /// Data with which another process opens one allocation of a shared pool.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CUmemPoolPtrExportData {
        /// Opaque.
        pub reserved: [u8; 64],
    }
}

zeroed! { CUmemPoolProps, CUmemPoolPtrExportData }
