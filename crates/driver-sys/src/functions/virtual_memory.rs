//! Virtual memory: address ranges and the physical memory mapped to them.

/// Passes on the functions of this area; see [`driver_functions!`](crate::driver_functions).
#[doc(hidden)]
#[macro_export]
macro_rules! __virtual_memory_functions {
    ($next:ident $($state:tt)*) => {
        $crate::$next! { $($state)*
        required {
            /// Reserves a range of addresses, at `hint` if possible; it may be 0. `flags` is 0.
            fn cuMemAddressReserve(
                address: *mut $crate::CUdeviceptr, size: usize, alignment: usize,
                hint: $crate::CUdeviceptr, flags: u64
            );
            /// Frees a reserved range.
            fn cuMemAddressFree(address: $crate::CUdeviceptr, size: usize);
            /// Creates physical memory. `flags` is 0.
            fn cuMemCreate(
                handle: *mut $crate::CUmemGenericAllocationHandle, size: usize,
                properties: *const $crate::CUmemAllocationProp, flags: u64
            );
            /// Releases physical memory, which is freed once nothing maps it.
            fn cuMemRelease(handle: $crate::CUmemGenericAllocationHandle);
            /// Maps physical memory into reserved addresses. `flags` is 0.
            fn cuMemMap(
                address: $crate::CUdeviceptr, size: usize, offset: usize,
                handle: $crate::CUmemGenericAllocationHandle, flags: u64
            );
            /// Removes a mapping.
            fn cuMemUnmap(address: $crate::CUdeviceptr, size: usize);
            /// Sets how `count` locations may access mapped addresses; there is no access before.
            fn cuMemSetAccess(
                address: $crate::CUdeviceptr, size: usize,
                descriptors: *const $crate::CUmemAccessDesc, count: usize
            );
            /// Writes how a location may access an address, as `CUmemAccess_flags`.
            fn cuMemGetAccess(
                flags: *mut u64, location: *const $crate::CUmemLocation,
                address: $crate::CUdeviceptr
            );
            /// Writes an operating system handle of physical memory, for other processes. `flags`
            /// is 0.
            fn cuMemExportToShareableHandle(
                shareable_handle: *mut $crate::c_void,
                handle: $crate::CUmemGenericAllocationHandle,
                handle_type: $crate::CUmemAllocationHandleType, flags: u64
            );
            /// Opens physical memory of another process by its handle.
            fn cuMemImportFromShareableHandle(
                handle: *mut $crate::CUmemGenericAllocationHandle, os_handle: *mut $crate::c_void,
                handle_type: $crate::CUmemAllocationHandleType
            );
            /// Writes the granularity of sizes and addresses in bytes.
            fn cuMemGetAllocationGranularity(
                granularity: *mut usize, properties: *const $crate::CUmemAllocationProp,
                option: $crate::CUmemAllocationGranularity_flags
            );
            /// Writes the properties of physical memory.
            fn cuMemGetAllocationPropertiesFromHandle(
                properties: *mut $crate::CUmemAllocationProp,
                handle: $crate::CUmemGenericAllocationHandle
            );
            /// Writes the physical memory of an address and takes a reference to it.
            fn cuMemRetainAllocationHandle(
                handle: *mut $crate::CUmemGenericAllocationHandle, address: *mut $crate::c_void
            );
            /// Writes an operating system handle, such as a dma-buf descriptor, of a range of
            /// addresses. `flags` are `CU_MEM_RANGE_FLAG_…`.
            fn cuMemGetHandleForAddressRange(
                handle: *mut $crate::c_void, address: $crate::CUdeviceptr, size: usize,
                handle_type: $crate::CUmemRangeHandleType, flags: u64
            );
        }
        optional {
        }
        }
    };
}
