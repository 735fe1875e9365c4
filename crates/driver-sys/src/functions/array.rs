//! Arrays, and copies of rows between arrays and other memory. Offsets and sizes are in bytes.

/// Hands the functions of this area on; see [`driver_functions!`](crate::driver_functions).
#[doc(hidden)]
#[macro_export]
macro_rules! __array_functions {
    ($next:ident $($state:tt)*) => {
        $crate::$next! { $($state)*
        required {
            /// Makes an array of one or two dimensions.
            fn cuArrayCreate_v2(
                array: *mut $crate::CUarray, descriptor: *const $crate::CUDA_ARRAY_DESCRIPTOR
            );
            /// Writes the descriptor of an array of one or two dimensions.
            fn cuArrayGetDescriptor_v2(
                descriptor: *mut $crate::CUDA_ARRAY_DESCRIPTOR, array: $crate::CUarray
            );
            /// Makes an array of one, two or three dimensions.
            fn cuArray3DCreate_v2(
                array: *mut $crate::CUarray, descriptor: *const $crate::CUDA_ARRAY3D_DESCRIPTOR
            );
            /// Writes the descriptor of an array.
            fn cuArray3DGetDescriptor_v2(
                descriptor: *mut $crate::CUDA_ARRAY3D_DESCRIPTOR, array: $crate::CUarray
            );
            /// Destroys an array.
            fn cuArrayDestroy(array: $crate::CUarray);
            /// Copies from device memory to an array of one dimension.
            fn cuMemcpyDtoA_v2(
                dst: $crate::CUarray, dst_offset: usize, src: $crate::CUdeviceptr, bytes: usize
            );
            /// Copies from an array of one dimension to device memory.
            fn cuMemcpyAtoD_v2(
                dst: $crate::CUdeviceptr, src: $crate::CUarray, src_offset: usize, bytes: usize
            );
            /// Copies from the host to an array of one dimension and waits.
            fn cuMemcpyHtoA_v2(
                dst: $crate::CUarray, dst_offset: usize, src: *const $crate::c_void, bytes: usize
            );
            /// Copies from an array of one dimension to the host and waits.
            fn cuMemcpyAtoH_v2(
                dst: *mut $crate::c_void, src: $crate::CUarray, src_offset: usize, bytes: usize
            );
            /// Copies between arrays of one dimension.
            fn cuMemcpyAtoA_v2(
                dst: $crate::CUarray, dst_offset: usize, src: $crate::CUarray, src_offset: usize,
                bytes: usize
            );
            /// Copies from the host to an array of one dimension in stream order.
            fn cuMemcpyHtoAAsync_v2(
                dst: $crate::CUarray, dst_offset: usize, src: *const $crate::c_void, bytes: usize,
                stream: $crate::CUstream
            );
            /// Copies from an array of one dimension to the host in stream order.
            fn cuMemcpyAtoHAsync_v2(
                dst: *mut $crate::c_void, src: $crate::CUarray, src_offset: usize, bytes: usize,
                stream: $crate::CUstream
            );
        }
        optional {
        }
        }
    };
}
