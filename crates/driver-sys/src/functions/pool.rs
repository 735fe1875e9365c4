//! Stream-ordered memory and its pools.

/// Passes on the functions of this area; see [`driver_functions!`](crate::driver_functions).
#[doc(hidden)]
#[macro_export]
macro_rules! __pool_functions {
    ($next:ident $($state:tt)*) => {
        $crate::$next! { $($state)*
        required {
            /// Allocates device memory in stream order.
            fn cuMemAllocAsync(
                address: *mut $crate::CUdeviceptr, bytes: usize, stream: $crate::CUstream
            );
            /// Frees device memory in stream order.
            fn cuMemFreeAsync(address: $crate::CUdeviceptr, stream: $crate::CUstream);
            /// Allocates device memory from a pool in stream order.
            fn cuMemAllocFromPoolAsync(
                address: *mut $crate::CUdeviceptr, bytes: usize, pool: $crate::CUmemoryPool,
                stream: $crate::CUstream
            );
            /// Creates a pool.
            fn cuMemPoolCreate(
                pool: *mut $crate::CUmemoryPool, properties: *const $crate::CUmemPoolProps
            );
            /// Destroys a pool once everything allocated from it is freed.
            fn cuMemPoolDestroy(pool: $crate::CUmemoryPool);
            /// Frees unused memory of the pool, down to `bytes_to_keep`.
            fn cuMemPoolTrimTo(pool: $crate::CUmemoryPool, bytes_to_keep: usize);
            /// Writes a property of a pool, an `i32` or a `u64` depending on the attribute.
            fn cuMemPoolGetAttribute(
                pool: $crate::CUmemoryPool, attribute: $crate::CUmemPool_attribute,
                value: *mut $crate::c_void
            );
            /// Sets a property of a pool, an `i32` or a `u64` depending on the attribute.
            fn cuMemPoolSetAttribute(
                pool: $crate::CUmemoryPool, attribute: $crate::CUmemPool_attribute,
                value: *mut $crate::c_void
            );
            /// Writes how a location may access memory of the pool.
            fn cuMemPoolGetAccess(
                flags: *mut $crate::CUmemAccess_flags, pool: $crate::CUmemoryPool,
                location: *mut $crate::CUmemLocation
            );
            /// Sets how `count` locations may access memory of the pool.
            fn cuMemPoolSetAccess(
                pool: $crate::CUmemoryPool, descriptors: *const $crate::CUmemAccessDesc,
                count: usize
            );
            /// Writes an operating system handle of a pool, for other processes. `flags` is 0.
            fn cuMemPoolExportToShareableHandle(
                handle: *mut $crate::c_void, pool: $crate::CUmemoryPool,
                handle_type: $crate::CUmemAllocationHandleType, flags: u64
            );
            /// Opens a pool of another process by its handle. `flags` is 0.
            fn cuMemPoolImportFromShareableHandle(
                pool: *mut $crate::CUmemoryPool, handle: *mut $crate::c_void,
                handle_type: $crate::CUmemAllocationHandleType, flags: u64
            );
            /// Writes the data with which another process opens one allocation of a shared pool.
            fn cuMemPoolExportPointer(
                share_data: *mut $crate::CUmemPoolPtrExportData, address: $crate::CUdeviceptr
            );
            /// Opens one allocation of another process.
            fn cuMemPoolImportPointer(
                address: *mut $crate::CUdeviceptr, pool: $crate::CUmemoryPool,
                share_data: *mut $crate::CUmemPoolPtrExportData
            );
        }
        optional {
            /// Writes the default pool of a location, for allocations of this type.
            fn cuMemGetDefaultMemPool(
                pool: *mut $crate::CUmemoryPool, location: *mut $crate::CUmemLocation,
                kind: $crate::CUmemAllocationType
            ) since 13000;
            /// Writes the current pool of a location, for allocations of this type.
            fn cuMemGetMemPool(
                pool: *mut $crate::CUmemoryPool, location: *mut $crate::CUmemLocation,
                kind: $crate::CUmemAllocationType
            ) since 13000;
            /// Sets the current pool of a location, for allocations of this type.
            fn cuMemSetMemPool(
                location: *mut $crate::CUmemLocation, kind: $crate::CUmemAllocationType,
                pool: $crate::CUmemoryPool
            ) since 13000;
        }
        }
    };
}
