//! Location, access and kind of memory: types that pools, managed memory
//! and virtual memory share.

use crate::enumeration::enumerations;
use crate::structure::{structures, zeroed};

enumerations! {
    /// The kind of a location.
    CUmemLocationType: u32 {
        /// None; a location that was not filled in.
        CU_MEM_LOCATION_TYPE_INVALID = 0;
        /// No particular location.
        CU_MEM_LOCATION_TYPE_NONE = 0 since 13000;
        /// A device, by its ordinal.
        CU_MEM_LOCATION_TYPE_DEVICE = 1;
        /// The host; the identifier is ignored.
        CU_MEM_LOCATION_TYPE_HOST = 2 since 12020;
        /// A NUMA node of the host, by its index.
        CU_MEM_LOCATION_TYPE_HOST_NUMA = 3 since 12020;
        /// The NUMA node closest to the calling thread; the identifier is ignored.
        CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT = 4 since 12020;
    }

    /// How a location may access memory.
    CUmemAccess_flags: u32 {
        /// No access.
        CU_MEM_ACCESS_FLAGS_PROT_NONE = 0;
        /// Reading.
        CU_MEM_ACCESS_FLAGS_PROT_READ = 1;
        /// Reading and writing.
        CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3;
    }

    /// The kind of memory that a pool or an allocation consists of.
    CUmemAllocationType: u32 {
        /// None.
        CU_MEM_ALLOCATION_TYPE_INVALID = 0;
        /// Memory that is not moved.
        CU_MEM_ALLOCATION_TYPE_PINNED = 1;
        /// Managed memory, which migrates between locations.
        CU_MEM_ALLOCATION_TYPE_MANAGED = 2 since 13000;
    }

    /// The kind of operating system handle with which other processes open memory; a bit mask where
    /// several are allowed.
    CUmemAllocationHandleType: u32 {
        /// None.
        CU_MEM_HANDLE_TYPE_NONE = 0;
        /// A file descriptor.
        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR = 1;
        /// A Windows NT handle.
        CU_MEM_HANDLE_TYPE_WIN32 = 2;
        /// A Windows KMT handle.
        CU_MEM_HANDLE_TYPE_WIN32_KMT = 4;
        /// A handle for machines of a fabric.
        CU_MEM_HANDLE_TYPE_FABRIC = 8 since 12030;
    }
}

structures! {
    /// The location of memory.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CUmemLocation {
        /// The kind of location.
        pub r#type: CUmemLocationType,
        /// The identifier, depending on the kind.
        pub id: i32,
    }

    /// How one location may access memory.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CUmemAccessDesc {
        /// The location.
        pub location: CUmemLocation,
        /// The access.
        pub flags: CUmemAccess_flags,
    }
}

zeroed! { CUmemLocation, CUmemAccessDesc }
