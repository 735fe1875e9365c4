//! Memory: device, pinned and registered host memory.

/// Passes on the functions of this area; see [`driver_functions!`](crate::driver_functions).
#[doc(hidden)]
#[macro_export]
macro_rules! __memory_functions {
    ($next:ident $($state:tt)*) => {
        $crate::$next! { $($state)*
        required {
            /// Writes free and total bytes of the device.
            fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
            /// Allocates device memory; its content is undefined.
            fn cuMemAlloc_v2(address: *mut $crate::CUdeviceptr, bytes: usize);
            /// Allocates `height` rows of `width_bytes` and writes their pitch, so that elements of
            /// `element_bytes` (4, 8 or 16) of a row coalesce.
            fn cuMemAllocPitch_v2(
                address: *mut $crate::CUdeviceptr, pitch: *mut usize, width_bytes: usize,
                height: usize, element_bytes: u32
            );
            /// Frees device memory, after waiting for the device.
            fn cuMemFree_v2(address: $crate::CUdeviceptr);
            /// Writes base and size of the allocation that contains an address; either may be null.
            fn cuMemGetAddressRange_v2(
                base: *mut $crate::CUdeviceptr, size: *mut usize, address: $crate::CUdeviceptr
            );
            /// Allocates pinned host memory.
            fn cuMemAllocHost_v2(pointer: *mut *mut $crate::c_void, bytes: usize);
            /// Allocates pinned host memory with flags `CU_MEMHOSTALLOC_…`.
            fn cuMemHostAlloc(pointer: *mut *mut $crate::c_void, bytes: usize, flags: u32);
            /// Frees pinned host memory.
            fn cuMemFreeHost(pointer: *mut $crate::c_void);
            /// Writes the device address of mapped host memory. `flags` is 0.
            fn cuMemHostGetDevicePointer_v2(
                address: *mut $crate::CUdeviceptr, pointer: *mut $crate::c_void, flags: u32
            );
            /// Writes the flags that pinned host memory was allocated with.
            fn cuMemHostGetFlags(flags: *mut u32, pointer: *mut $crate::c_void);
            /// Pins existing host memory, with flags `CU_MEMHOSTREGISTER_…`.
            fn cuMemHostRegister_v2(pointer: *mut $crate::c_void, bytes: usize, flags: u32);
            /// Undoes `cuMemHostRegister_v2`.
            fn cuMemHostUnregister(pointer: *mut $crate::c_void);
            /// Writes a property of an address; the attribute determines its type.
            fn cuPointerGetAttribute(
                data: *mut $crate::c_void, attribute: $crate::CUpointer_attribute,
                address: $crate::CUdeviceptr
            );
            /// Writes several properties of an address, each to its own location. An address
            /// unknown to CUDA gives default values instead of an error.
            fn cuPointerGetAttributes(
                count: u32, attributes: *mut $crate::CUpointer_attribute,
                data: *mut *mut $crate::c_void, address: $crate::CUdeviceptr
            );
            /// Sets a property of an allocation; the attribute determines the type of the value.
            fn cuPointerSetAttribute(
                value: *const $crate::c_void, attribute: $crate::CUpointer_attribute,
                address: $crate::CUdeviceptr
            );
        }
        optional {
        }
        }
    };
}
