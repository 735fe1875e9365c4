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
            /// Writes a description of `count` resources, from which a green context is created.
            fn cuDevResourceGenerateDesc(
                description: *mut $crate::CUdevResourceDesc, resources: *mut $crate::CUdevResource,
                count: u32
            ) since 12040;
            /// Creates a green context: a context whose work uses only the described resources of
            /// the device. It retains the primary context, with which it shares memory. `flags`
            /// must be [`CU_GREEN_CTX_DEFAULT_STREAM`](crate::CU_GREEN_CTX_DEFAULT_STREAM).
            fn cuGreenCtxCreate(
                context: *mut $crate::CUgreenCtx, description: $crate::CUdevResourceDesc,
                device: $crate::CUdevice, flags: u32
            ) since 12040;
            /// Destroys a green context.
            fn cuGreenCtxDestroy(context: $crate::CUgreenCtx) since 12040;
            /// Writes the `CUcontext` of a green context, which all other functions take.
            fn cuCtxFromGreenCtx(
                context: *mut $crate::CUcontext, green: $crate::CUgreenCtx
            ) since 12040;
            /// Writes the resource of a type that a green context can use.
            fn cuGreenCtxGetDevResource(
                context: $crate::CUgreenCtx, resource: *mut $crate::CUdevResource,
                kind: $crate::CUdevResourceType
            ) since 12040;
            /// Creates a stream of a green context. `flags` must be `CU_STREAM_NON_BLOCKING`.
            fn cuGreenCtxStreamCreate(
                stream: *mut $crate::CUstream, context: $crate::CUgreenCtx, flags: u32,
                priority: i32
            ) since 12050;
        }
        }
    };
}
