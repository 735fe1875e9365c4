//! Resources of devices.

/// Hands the functions of this area on; see [`driver_functions!`](crate::driver_functions).
#[doc(hidden)]
#[macro_export]
macro_rules! __resource_functions {
    ($next:ident $($state:tt)*) => {
        $crate::$next! { $($state)*
        required {
        }
        optional {
            /// Writes the resource of a type that a device has.
            fn cuDeviceGetDevResource(
                device: $crate::CUdevice, resource: *mut $crate::CUdevResource,
                kind: $crate::CUdevResourceType
            ) since 12040;
            /// Writes the resource of a type that a context can use.
            fn cuCtxGetDevResource(
                context: $crate::CUcontext, resource: *mut $crate::CUdevResource,
                kind: $crate::CUdevResourceType
            ) since 12040;
            /// Divides multiprocessors into groups of at least `min_count`. Writes at most
            /// `groups` of them to `result`, their number to `groups` and the rest to
            /// `remaining`, which may be null. A null `result` asks for the largest number of
            /// groups. `flags` are `CU_DEV_SM_RESOURCE_SPLIT_…`.
            fn cuDevSmResourceSplitByCount(
                result: *mut $crate::CUdevResource, groups: *mut u32,
                input: *const $crate::CUdevResource, remaining: *mut $crate::CUdevResource,
                flags: u32, min_count: u32
            ) since 12040;
        }
        }
    };
}
