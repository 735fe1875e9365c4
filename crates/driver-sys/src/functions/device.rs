//! Devices and their properties.

/// Passes on the functions of this area; see [`driver_functions!`](crate::driver_functions).
#[doc(hidden)]
#[macro_export]
macro_rules! __device_functions {
    ($next:ident $($state:tt)*) => {
        $crate::$next! { $($state)*
        required {
            /// Writes the device with this ordinal.
            fn cuDeviceGet(device: *mut $crate::CUdevice, ordinal: i32);
            /// Writes the number of devices.
            fn cuDeviceGetCount(count: *mut i32);
            /// Writes at most `len` bytes of the name, the final zero included.
            fn cuDeviceGetName(name: *mut $crate::c_char, len: i32, device: $crate::CUdevice);
            /// Writes the identity of the device.
            fn cuDeviceGetUuid_v2(uuid: *mut $crate::CUuuid, device: $crate::CUdevice);
            /// Writes the 8-byte locally unique identifier (LUID) of the device on Windows, and its
            /// node mask.
            fn cuDeviceGetLuid(
                luid: *mut $crate::c_char, node_mask: *mut u32, device: $crate::CUdevice
            );
            /// Writes the size of device memory in bytes.
            fn cuDeviceTotalMem_v2(bytes: *mut usize, device: $crate::CUdevice);
            /// Writes a property of the device.
            fn cuDeviceGetAttribute(
                value: *mut i32, attribute: $crate::CUdevice_attribute, device: $crate::CUdevice
            );
            /// Writes the device at a PCI address, given as text like `0000:65:00.0`.
            fn cuDeviceGetByPCIBusId(device: *mut $crate::CUdevice, text: *const $crate::c_char);
            /// Writes the PCI address as text, at most `len` bytes with the final zero; 13 are
            /// enough.
            fn cuDeviceGetPCIBusId(text: *mut $crate::c_char, len: i32, device: $crate::CUdevice);
            /// Writes whether a context can be limited to a part of the device in this way.
            fn cuDeviceGetExecAffinitySupport(
                value: *mut i32, kind: $crate::CUexecAffinityType, device: $crate::CUdevice
            );
            /// Writes the current pool of `cuMemAllocAsync` on this device.
            fn cuDeviceGetMemPool(pool: *mut $crate::CUmemoryPool, device: $crate::CUdevice);
            /// Sets the current pool of `cuMemAllocAsync` on this device.
            fn cuDeviceSetMemPool(device: $crate::CUdevice, pool: $crate::CUmemoryPool);
            /// Writes the default pool of the device.
            fn cuDeviceGetDefaultMemPool(pool: *mut $crate::CUmemoryPool, device: $crate::CUdevice);
            /// Writes whether contexts on the first device can be given access to memory of the
            /// second.
            fn cuDeviceCanAccessPeer(
                can_access: *mut i32, device: $crate::CUdevice, peer: $crate::CUdevice
            );
            /// Writes a property of the link from one device to another.
            fn cuDeviceGetP2PAttribute(
                value: *mut i32, attribute: $crate::CUdevice_P2PAttribute,
                source: $crate::CUdevice, destination: $crate::CUdevice
            );
        }
        optional {
            /// Writes flags of support for each of `count` atomic operations between device and
            /// host memory.
            fn cuDeviceGetHostAtomicCapabilities(
                capabilities: *mut u32, operations: *const $crate::CUatomicOperation, count: u32,
                device: $crate::CUdevice
            ) since 13000;
            /// Writes flags of support for each of `count` atomic operations from one device on
            /// another.
            fn cuDeviceGetP2PAtomicCapabilities(
                capabilities: *mut u32, operations: *const $crate::CUatomicOperation, count: u32,
                source: $crate::CUdevice, destination: $crate::CUdevice
            ) since 13000;
        }
        }
    };
}
