//! Settings of GPU core dumps.

/// Hands the functions of this area on; see [`driver_functions!`](crate::driver_functions).
#[doc(hidden)]
#[macro_export]
macro_rules! __coredump_functions {
    ($next:ident $($state:tt)*) => {
        $crate::$next! { $($state)*
        required {
        }
        optional {
            /// Writes a setting of the current context to `value`, which has `size` bytes; without
            /// `value`, writes the bytes that the setting needs to `size`.
            fn cuCoredumpGetAttribute(
                setting: $crate::CUcoredumpSettings, value: *mut $crate::c_void, size: *mut usize
            ) since 12010;
            /// Writes a setting of the process to `value`, which has `size` bytes; without `value`,
            /// writes the bytes that the setting needs to `size`.
            fn cuCoredumpGetAttributeGlobal(
                setting: $crate::CUcoredumpSettings, value: *mut $crate::c_void, size: *mut usize
            ) since 12010;
            /// Changes a setting of the current context to `value`, which has `size` bytes; without
            /// `value`, writes the bytes that the setting needs to `size`.
            fn cuCoredumpSetAttribute(
                setting: $crate::CUcoredumpSettings, value: *mut $crate::c_void, size: *mut usize
            ) since 12010;
            /// Changes a setting of the process to `value`, which has `size` bytes; without
            /// `value`, writes the bytes that the setting needs to `size`.
            fn cuCoredumpSetAttributeGlobal(
                setting: $crate::CUcoredumpSettings, value: *mut $crate::c_void, size: *mut usize
            ) since 12010;
        }
        }
    };
}
