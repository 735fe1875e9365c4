//! Copies. Functions whose name ends in `Async` work in stream order.

/// Passes on the functions of this area; see [`driver_functions!`](crate::driver_functions).
#[doc(hidden)]
#[macro_export]
macro_rules! __copy_functions {
    ($next:ident $($state:tt)*) => {
        $crate::$next! { $($state)*
        required {
            /// Copies between addresses of any kind, and waits if host memory is involved.
            fn cuMemcpy(dst: $crate::CUdeviceptr, src: $crate::CUdeviceptr, bytes: usize);
            /// Copies between memory of two contexts.
            fn cuMemcpyPeer(
                dst: $crate::CUdeviceptr, dst_context: $crate::CUcontext, src: $crate::CUdeviceptr,
                src_context: $crate::CUcontext, bytes: usize
            );
            /// Copies from host to device and waits.
            fn cuMemcpyHtoD_v2(dst: $crate::CUdeviceptr, src: *const $crate::c_void, bytes: usize);
            /// Copies from device to host and waits.
            fn cuMemcpyDtoH_v2(dst: *mut $crate::c_void, src: $crate::CUdeviceptr, bytes: usize);
            /// Copies inside device memory, ordered by the legacy stream.
            fn cuMemcpyDtoD_v2(dst: $crate::CUdeviceptr, src: $crate::CUdeviceptr, bytes: usize);
            /// Copies a rectangle of bytes; row pitches are limited by
            /// `CU_DEVICE_ATTRIBUTE_MAX_PITCH`.
            fn cuMemcpy2D_v2(parameters: *const $crate::CUDA_MEMCPY2D);
            /// Copies a rectangle of bytes with any pitch.
            fn cuMemcpy2DUnaligned_v2(parameters: *const $crate::CUDA_MEMCPY2D);
            /// Copies a box of bytes.
            fn cuMemcpy3D_v2(parameters: *const $crate::CUDA_MEMCPY3D);
            /// Copies a box of bytes between memory of two contexts.
            fn cuMemcpy3DPeer(parameters: *const $crate::CUDA_MEMCPY3D_PEER);
            /// Copies between addresses of any kind in stream order.
            fn cuMemcpyAsync(
                dst: $crate::CUdeviceptr, src: $crate::CUdeviceptr, bytes: usize,
                stream: $crate::CUstream
            );
            /// Copies between memory of two contexts in stream order.
            fn cuMemcpyPeerAsync(
                dst: $crate::CUdeviceptr, dst_context: $crate::CUcontext, src: $crate::CUdeviceptr,
                src_context: $crate::CUcontext, bytes: usize, stream: $crate::CUstream
            );
            /// Copies from host to device in stream order.
            fn cuMemcpyHtoDAsync_v2(
                dst: $crate::CUdeviceptr, src: *const $crate::c_void, bytes: usize,
                stream: $crate::CUstream
            );
            /// Copies from device to host in stream order.
            fn cuMemcpyDtoHAsync_v2(
                dst: *mut $crate::c_void, src: $crate::CUdeviceptr, bytes: usize,
                stream: $crate::CUstream
            );
            /// Copies inside device memory in stream order.
            fn cuMemcpyDtoDAsync_v2(
                dst: $crate::CUdeviceptr, src: $crate::CUdeviceptr, bytes: usize,
                stream: $crate::CUstream
            );
            /// Copies a rectangle of bytes in stream order.
            fn cuMemcpy2DAsync_v2(
                parameters: *const $crate::CUDA_MEMCPY2D, stream: $crate::CUstream
            );
            /// Copies a box of bytes in stream order.
            fn cuMemcpy3DAsync_v2(
                parameters: *const $crate::CUDA_MEMCPY3D, stream: $crate::CUstream
            );
            /// Copies a box of bytes between memory of two contexts in stream order.
            fn cuMemcpy3DPeerAsync(
                parameters: *const $crate::CUDA_MEMCPY3D_PEER, stream: $crate::CUstream
            );
        }
        optional {
            /// Performs `count` copies in stream order, in any order among each other;
            /// `attribute_indices` holds the first copy of each attribute.
            fn cuMemcpyBatchAsync_v2(
                dsts: *mut $crate::CUdeviceptr, srcs: *mut $crate::CUdeviceptr, sizes: *mut usize,
                count: usize, attributes: *mut $crate::CUmemcpyAttributes,
                attribute_indices: *mut usize, attribute_count: usize, stream: $crate::CUstream
            ) since 13000;
            /// Performs `count` copies of boxes in stream order, in any order among each other.
            /// `flags` is 0.
            fn cuMemcpy3DBatchAsync_v2(
                count: usize, operations: *mut $crate::CUDA_MEMCPY3D_BATCH_OP, flags: u64,
                stream: $crate::CUstream
            ) since 13000;
        }
        }
    };
}
