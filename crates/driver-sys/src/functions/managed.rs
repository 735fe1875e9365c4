//! Managed memory: advice, prefetching and attachment.

/// Passes on the functions of this area; see [`driver_functions!`](crate::driver_functions).
#[doc(hidden)]
#[macro_export]
macro_rules! __managed_functions {
    ($next:ident $($state:tt)*) => {
        $crate::$next! { $($state)*
        required {
            /// Allocates memory that host and devices share, with flags `CU_MEM_ATTACH_…`.
            fn cuMemAllocManaged(address: *mut $crate::CUdeviceptr, bytes: usize, flags: u32);
            /// Ties managed memory to a stream, in its order; a `length` of 0 means the whole
            /// allocation. Flags are `CU_MEM_ATTACH_…`.
            fn cuStreamAttachMemAsync(
                stream: $crate::CUstream, address: $crate::CUdeviceptr, length: usize, flags: u32
            );
            /// Advises how managed memory will be used; `device` is an ordinal or `CU_DEVICE_CPU`.
            /// Headers of CUDA 13 no longer declare it.
            fn cuMemAdvise(
                address: $crate::CUdeviceptr, bytes: usize, advice: $crate::CUmem_advise,
                device: $crate::CUdevice
            );
            /// Moves managed memory to a device, or with `CU_DEVICE_CPU` to the host, in stream
            /// order. Headers of CUDA 13 no longer declare it.
            fn cuMemPrefetchAsync(
                address: $crate::CUdeviceptr, bytes: usize, device: $crate::CUdevice,
                stream: $crate::CUstream
            );
            /// Writes a property of a range of managed memory.
            fn cuMemRangeGetAttribute(
                data: *mut $crate::c_void, size: usize, attribute: $crate::CUmem_range_attribute,
                address: $crate::CUdeviceptr, bytes: usize
            );
            /// Writes several properties of a range of managed memory.
            fn cuMemRangeGetAttributes(
                data: *mut *mut $crate::c_void, sizes: *mut usize,
                attributes: *mut $crate::CUmem_range_attribute, attribute_count: usize,
                address: $crate::CUdeviceptr, bytes: usize
            );
        }
        optional {
            /// Advises how managed memory will be used at a location.
            fn cuMemAdvise_v2(
                address: $crate::CUdeviceptr, bytes: usize, advice: $crate::CUmem_advise,
                location: $crate::CUmemLocation
            ) since 12020;
            /// Moves managed memory to a location, in stream order. `flags` is 0.
            fn cuMemPrefetchAsync_v2(
                address: $crate::CUdeviceptr, bytes: usize, location: $crate::CUmemLocation,
                flags: u32, stream: $crate::CUstream
            ) since 12020;
            /// Moves several ranges of managed memory, in stream order; `location_indices` holds
            /// the first range of each location. `flags` is 0.
            fn cuMemPrefetchBatchAsync(
                addresses: *mut $crate::CUdeviceptr, sizes: *mut usize, count: usize,
                locations: *mut $crate::CUmemLocation, location_indices: *mut usize,
                location_count: usize, flags: u64, stream: $crate::CUstream
            ) since 13000;
            /// Discards the content of several managed ranges, in stream order. `flags` is 0.
            fn cuMemDiscardBatchAsync(
                addresses: *mut $crate::CUdeviceptr, sizes: *mut usize, count: usize, flags: u64,
                stream: $crate::CUstream
            ) since 13000;
            /// Discards several managed ranges and moves them, in stream order. `flags` is 0.
            fn cuMemDiscardAndPrefetchBatchAsync(
                addresses: *mut $crate::CUdeviceptr, sizes: *mut usize, count: usize,
                locations: *mut $crate::CUmemLocation, location_indices: *mut usize,
                location_count: usize, flags: u64, stream: $crate::CUstream
            ) since 13000;
        }
        }
    };
}
