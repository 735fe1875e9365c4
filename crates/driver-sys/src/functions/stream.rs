//! Streams.

/// Passes on the functions of this area; see [`driver_functions!`](crate::driver_functions).
#[doc(hidden)]
#[macro_export]
macro_rules! __stream_functions {
    ($next:ident $($state:tt)*) => {
        $crate::$next! { $($state)*
        required {
            /// Creates a stream. Flags are `CU_STREAM_…`.
            fn cuStreamCreate(stream: *mut $crate::CUstream, flags: u32);
            /// Creates a stream with a priority; lower numbers are more urgent.
            fn cuStreamCreateWithPriority(stream: *mut $crate::CUstream, flags: u32, priority: i32);
            /// Destroys a stream; its work still completes.
            fn cuStreamDestroy_v2(stream: $crate::CUstream);
            /// Waits for the work of a stream.
            fn cuStreamSynchronize(stream: $crate::CUstream);
            /// Queries whether the work of a stream is complete: success or 600.
            fn cuStreamQuery(stream: $crate::CUstream);
            /// Makes later work of the stream wait for an event. Flags are `CU_EVENT_WAIT_…`.
            fn cuStreamWaitEvent(stream: $crate::CUstream, event: $crate::CUevent, flags: u32);
            /// Writes the flags of a stream.
            fn cuStreamGetFlags(stream: $crate::CUstream, flags: *mut u32);
            /// Writes the priority of a stream.
            fn cuStreamGetPriority(stream: $crate::CUstream, priority: *mut i32);
            /// Writes an identifier that is unique among all streams of the process.
            fn cuStreamGetId(stream: $crate::CUstream, id: *mut u64);
            /// Writes the context of a stream.
            fn cuStreamGetCtx(stream: $crate::CUstream, context: *mut $crate::CUcontext);
            /// Calls a host function with the state of the stream, in stream order, even after an
            /// error. `flags` is 0. `cuLaunchHostFunc` replaces it.
            fn cuStreamAddCallback(
                stream: $crate::CUstream, callback: $crate::CUstreamCallback,
                data: *mut $crate::c_void, flags: u32
            );
            /// Copies all attributes from one stream to another.
            fn cuStreamCopyAttributes(target: $crate::CUstream, source: $crate::CUstream);
            /// Writes an attribute of a stream; only a few identifiers apply to streams.
            fn cuStreamGetAttribute(
                stream: $crate::CUstream, attribute: $crate::CUstreamAttrID,
                value: *mut $crate::CUstreamAttrValue
            );
            /// Sets an attribute of a stream for later work.
            fn cuStreamSetAttribute(
                stream: $crate::CUstream, attribute: $crate::CUstreamAttrID,
                value: *const $crate::CUstreamAttrValue
            );
            /// Makes later work wait until a comparison with a 32-bit word in memory holds; flags
            /// are `CU_STREAM_WAIT_VALUE_…`.
            fn cuStreamWaitValue32_v2(
                stream: $crate::CUstream, address: $crate::CUdeviceptr, value: u32, flags: u32
            );
            /// Makes later work wait until a comparison with a 64-bit word in memory holds; flags
            /// are `CU_STREAM_WAIT_VALUE_…`.
            fn cuStreamWaitValue64_v2(
                stream: $crate::CUstream, address: $crate::CUdeviceptr, value: u64, flags: u32
            );
            /// Writes a 32-bit word in stream order; flags are `CU_STREAM_WRITE_VALUE_…`.
            fn cuStreamWriteValue32_v2(
                stream: $crate::CUstream, address: $crate::CUdeviceptr, value: u32, flags: u32
            );
            /// Writes a 64-bit word in stream order; flags are `CU_STREAM_WRITE_VALUE_…`.
            fn cuStreamWriteValue64_v2(
                stream: $crate::CUstream, address: $crate::CUdeviceptr, value: u64, flags: u32
            );
            /// Performs `count` waits, writes and barriers in stream order. `flags` is 0.
            fn cuStreamBatchMemOp_v2(
                stream: $crate::CUstream, count: u32,
                operations: *mut $crate::CUstreamBatchMemOpParams, flags: u32
            );
        }
        optional {
            /// Writes the context of a stream, or its green context and null.
            fn cuStreamGetCtx_v2(
                stream: $crate::CUstream, context: *mut $crate::CUcontext,
                green: *mut $crate::CUgreenCtx
            ) since 12050;
            /// Writes the device of a stream.
            fn cuStreamGetDevice(
                stream: $crate::CUstream, device: *mut $crate::CUdevice
            ) since 12080;
        }
        }
    };
}
