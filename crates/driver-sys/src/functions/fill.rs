//! Fills. Counts and widths are in elements, pitches in bytes; `Async` means in stream order.

/// Passes on the functions of this area; see [`driver_functions!`](crate::driver_functions).
#[doc(hidden)]
#[macro_export]
macro_rules! __fill_functions {
    ($next:ident $($state:tt)*) => {
        $crate::$next! { $($state)*
        required {
            /// Fills `count` bytes.
            fn cuMemsetD8_v2(dst: $crate::CUdeviceptr, value: u8, count: usize);
            /// Fills `count` 16-bit words.
            fn cuMemsetD16_v2(dst: $crate::CUdeviceptr, value: u16, count: usize);
            /// Fills `count` 32-bit words.
            fn cuMemsetD32_v2(dst: $crate::CUdeviceptr, value: u32, count: usize);
            /// Fills `height` rows of `width` bytes.
            fn cuMemsetD2D8_v2(
                dst: $crate::CUdeviceptr, pitch: usize, value: u8, width: usize, height: usize
            );
            /// Fills `height` rows of `width` 16-bit words.
            fn cuMemsetD2D16_v2(
                dst: $crate::CUdeviceptr, pitch: usize, value: u16, width: usize, height: usize
            );
            /// Fills `height` rows of `width` 32-bit words.
            fn cuMemsetD2D32_v2(
                dst: $crate::CUdeviceptr, pitch: usize, value: u32, width: usize, height: usize
            );
            /// Fills `count` bytes in stream order.
            fn cuMemsetD8Async(
                dst: $crate::CUdeviceptr, value: u8, count: usize, stream: $crate::CUstream
            );
            /// Fills `count` 16-bit words in stream order.
            fn cuMemsetD16Async(
                dst: $crate::CUdeviceptr, value: u16, count: usize, stream: $crate::CUstream
            );
            /// Fills `count` 32-bit words in stream order.
            fn cuMemsetD32Async(
                dst: $crate::CUdeviceptr, value: u32, count: usize, stream: $crate::CUstream
            );
            /// Fills `height` rows of `width` bytes in stream order.
            fn cuMemsetD2D8Async(
                dst: $crate::CUdeviceptr, pitch: usize, value: u8, width: usize, height: usize,
                stream: $crate::CUstream
            );
            /// Fills `height` rows of `width` 16-bit words in stream order.
            fn cuMemsetD2D16Async(
                dst: $crate::CUdeviceptr, pitch: usize, value: u16, width: usize, height: usize,
                stream: $crate::CUstream
            );
            /// Fills `height` rows of `width` 32-bit words in stream order.
            fn cuMemsetD2D32Async(
                dst: $crate::CUdeviceptr, pitch: usize, value: u32, width: usize, height: usize,
                stream: $crate::CUstream
            );
        }
        optional {
        }
        }
    };
}
