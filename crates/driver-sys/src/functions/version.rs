//! Initialization, versions, errors and symbols.

/// Passes on the functions of this area; see [`driver_functions!`](crate::driver_functions).
#[doc(hidden)]
#[macro_export]
macro_rules! __version_functions {
    ($next:ident $($state:tt)*) => {
        $crate::$next! { $($state)*
        required {
            /// Initializes the driver; first call of a process. `flags` is 0.
            fn cuInit(flags: u32);
            /// Writes the newest CUDA version that the driver supports, as 1000 × major + 10 ×
            /// minor.
            fn cuDriverGetVersion(version: *mut i32);
            /// Writes the name of a code, a static string.
            fn cuGetErrorName(error: $crate::CUresult, name: *mut *const $crate::c_char);
            /// Writes the description of a code, a static string.
            fn cuGetErrorString(error: $crate::CUresult, text: *mut *const $crate::c_char);
            /// Writes the address of the newest form of a function up to `version` (1000 × major +
            /// 10 × minor), and the result of the lookup. `symbol` carries no suffix such as `_v2`;
            /// `flags` are `CU_GET_PROC_ADDRESS_…`.
            fn cuGetProcAddress_v2(
                symbol: *const $crate::c_char, address: *mut *mut $crate::c_void, version: i32,
                flags: u64, status: *mut $crate::CUdriverProcAddressQueryResult
            );
        }
        optional {
        }
        }
    };
}
