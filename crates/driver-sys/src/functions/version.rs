//! Initialization, versions, errors and symbols.

/// Hands the functions of this area on; see [`driver_functions!`](crate::driver_functions).
#[doc(hidden)]
#[macro_export]
macro_rules! __version_functions {
    ($next:ident $($state:tt)*) => {
        $crate::$next! { $($state)*
        required {
            /// Initializes the driver; first call of a process. `flags` is 0.
            fn cuInit(flags: u32);
            /// Writes the newest CUDA version of the driver, as 1000 × major + 10 × minor.
            fn cuDriverGetVersion(version: *mut i32);
            /// Writes the name of a code; static text.
            fn cuGetErrorName(error: $crate::CUresult, name: *mut *const $crate::c_char);
            /// Writes the meaning of a code; static text.
            fn cuGetErrorString(error: $crate::CUresult, text: *mut *const $crate::c_char);
            /// Writes the address of the newest form of a function that is not newer than `version`
            /// (1000 × major + 10 × minor), and why there is none. `symbol` carries no suffix such
            /// as `_v2`; `flags` are `CU_GET_PROC_ADDRESS_…`.
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
