//! Managed memory: attachment, advice and attributes of ranges.

use crate::enumeration::{enumerations, flags};

flags! {
    /// Flags of `cuMemAllocManaged` and `cuStreamAttachMemAsync`: who may use the memory.
    CUmemAttach_flags: u32 {
        /// Any stream on any device.
        CU_MEM_ATTACH_GLOBAL = 1;
        /// No stream, so that the host may use it while kernels run.
        CU_MEM_ATTACH_HOST = 2;
        /// One stream.
        CU_MEM_ATTACH_SINGLE = 4;
    }
}

enumerations! {
    /// How managed memory will be used.
    CUmem_advise: u32 {
        /// Mostly read, so that copies may exist in several places.
        CU_MEM_ADVISE_SET_READ_MOSTLY = 1;
        /// Undoes `CU_MEM_ADVISE_SET_READ_MOSTLY`.
        CU_MEM_ADVISE_UNSET_READ_MOSTLY = 2;
        /// Best kept at a location.
        CU_MEM_ADVISE_SET_PREFERRED_LOCATION = 3;
        /// Undoes `CU_MEM_ADVISE_SET_PREFERRED_LOCATION`.
        CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION = 4;
        /// Accessed from a location, so that it stays mapped there.
        CU_MEM_ADVISE_SET_ACCESSED_BY = 5;
        /// Undoes `CU_MEM_ADVISE_SET_ACCESSED_BY`.
        CU_MEM_ADVISE_UNSET_ACCESSED_BY = 6;
    }

    /// Attributes of `cuMemRangeGetAttribute`.
    CUmem_range_attribute: u32 {
        /// Whether all of it is advised to be mostly read, as `i32`.
        CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY = 1;
        /// The preferred device, as `i32`; -1 for the host, -2 for none.
        CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION = 2;
        /// The devices that it stays mapped on, as an array of `i32` padded with -2.
        CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY = 3;
        /// The device of the last prefetch, as `i32`; -1 for the host, -2 for none.
        CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION = 4;
        /// The kind of the preferred location, as `CUmemLocationType`.
        CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE = 5 since 12020;
        /// The identifier for that kind, as `i32`.
        CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID = 6 since 12020;
        /// The kind of the location of the last prefetch, as `CUmemLocationType`.
        CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE = 7 since 12020;
        /// The identifier for that kind, as `i32`.
        CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID = 8 since 12020;
    }
}
