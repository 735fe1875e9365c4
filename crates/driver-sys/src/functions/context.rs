//! Contexts: primary contexts, created contexts, and the state of the current one.

/// Passes on the functions of this area; see [`driver_functions!`](crate::driver_functions).
#[doc(hidden)]
#[macro_export]
macro_rules! __context_functions {
    ($next:ident $($state:tt)*) => {
        $crate::$next! { $($state)*
        required {
            /// Retains the primary context, and creates it if needed.
            fn cuDevicePrimaryCtxRetain(context: *mut $crate::CUcontext, device: $crate::CUdevice);
            /// Releases a reference; the last one destroys the context.
            fn cuDevicePrimaryCtxRelease_v2(device: $crate::CUdevice);
            /// Writes the flags, and whether the primary context exists.
            fn cuDevicePrimaryCtxGetState(
                device: $crate::CUdevice, flags: *mut u32, active: *mut i32
            );
            /// Sets the flags of the primary context.
            fn cuDevicePrimaryCtxSetFlags_v2(device: $crate::CUdevice, flags: u32);
            /// Destroys everything in the primary context, even if it is in use.
            fn cuDevicePrimaryCtxReset_v2(device: $crate::CUdevice);
            /// Creates a context and pushes it onto the calling thread. Headers of CUDA 13 no
            /// longer declare it; their drivers still export it.
            fn cuCtxCreate_v2(
                context: *mut $crate::CUcontext, flags: u32, device: $crate::CUdevice
            );
            /// Destroys a context made by `cuCtxCreate…` with everything in it.
            fn cuCtxDestroy_v2(context: $crate::CUcontext);
            /// Makes the context current on the calling thread; null for none.
            fn cuCtxSetCurrent(context: $crate::CUcontext);
            /// Writes the context that is current on the calling thread, or null.
            fn cuCtxGetCurrent(context: *mut $crate::CUcontext);
            /// Pushes the context onto the calling thread's stack, which makes it current.
            fn cuCtxPushCurrent_v2(context: $crate::CUcontext);
            /// Pops the current context and writes it.
            fn cuCtxPopCurrent_v2(context: *mut $crate::CUcontext);
            /// Writes the device of the current context.
            fn cuCtxGetDevice(device: *mut $crate::CUdevice);
            /// Writes the flags of the current context, `CU_CTX_…`.
            fn cuCtxGetFlags(flags: *mut u32);
            /// Writes an identifier that is unique among all contexts of the process; null means
            /// the current one.
            fn cuCtxGetId(context: $crate::CUcontext, id: *mut u64);
            /// Writes the API version that the context was created with; not a CUDA version.
            fn cuCtxGetApiVersion(context: $crate::CUcontext, version: *mut u32);
            /// Waits for all work of the current context.
            fn cuCtxSynchronize();
            /// Writes a limit of the current context.
            fn cuCtxGetLimit(value: *mut usize, limit: $crate::CUlimit);
            /// Sets a limit of the current context.
            fn cuCtxSetLimit(limit: $crate::CUlimit, value: usize);
            /// Writes the preferred cache configuration of the current context.
            fn cuCtxGetCacheConfig(config: *mut $crate::CUfunc_cache);
            /// Sets the preferred cache configuration of the current context.
            fn cuCtxSetCacheConfig(config: $crate::CUfunc_cache);
            /// Writes the range of stream priorities; lower numbers are more urgent.
            fn cuCtxGetStreamPriorityRange(least: *mut i32, greatest: *mut i32);
            /// Resets all persisting lines of the L2 cache to normal.
            fn cuCtxResetPersistingL2Cache();
            /// Writes the part of the device that the current context may use.
            fn cuCtxGetExecAffinity(
                affinity: *mut $crate::CUexecAffinityParam, kind: $crate::CUexecAffinityType
            );
            /// Lets the current context use memory of another one on a peer device. `flags` is 0.
            fn cuCtxEnablePeerAccess(peer: $crate::CUcontext, flags: u32);
            /// Undoes `cuCtxEnablePeerAccess`.
            fn cuCtxDisablePeerAccess(peer: $crate::CUcontext);
        }
        optional {
            /// Creates a context with further parameters, which may be null, and pushes it onto the
            /// calling thread.
            fn cuCtxCreate_v4(
                context: *mut $crate::CUcontext, parameters: *mut $crate::CUctxCreateParams,
                flags: u32, device: $crate::CUdevice
            ) since 12050;
            /// Writes the device of a context, which need not be current; null means the
            /// current one.
            fn cuCtxGetDevice_v2(
                device: *mut $crate::CUdevice, context: $crate::CUcontext
            ) since 13000;
            /// Sets the flags of the current context, `CU_CTX_…`.
            fn cuCtxSetFlags(flags: u32) since 12010;
            /// Waits for all work of a context, which need not be current; null means the
            /// current one.
            fn cuCtxSynchronize_v2(context: $crate::CUcontext) since 13000;
            /// Records an event after all work enqueued in a context so far.
            fn cuCtxRecordEvent(context: $crate::CUcontext, event: $crate::CUevent) since 12050;
            /// Makes all later work of a context wait for an event.
            fn cuCtxWaitEvent(context: $crate::CUcontext, event: $crate::CUevent) since 12050;
        }
        }
    };
}
