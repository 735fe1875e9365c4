//! Libraries: options of loading.

use std::ffi::c_void;

use crate::enumeration::enumerations;
use crate::structure::{structures, zeroed};

enumerations! {
    /// Options of `cuLibraryLoadData` and `cuLibraryLoadFromFile`.
    CUlibraryOption: u32 {
        /// A [`CUlibraryHostUniversalFunctionAndDataTable`] of data shared by host and device.
        CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE = 0;
        /// The image outlives the library, so that the driver need not copy it.
        CU_LIBRARY_BINARY_IS_PRESERVED = 1;
    }
}

structures! {
    /// Tables of functions and data that host and device share.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CUlibraryHostUniversalFunctionAndDataTable {
        /// The functions.
        pub functionTable: *mut c_void,
        /// Their size in bytes.
        pub functionWindowSize: usize,
        /// The data.
        pub dataTable: *mut c_void,
        /// Its size in bytes.
        pub dataWindowSize: usize,
    }
}

zeroed! { CUlibraryHostUniversalFunctionAndDataTable }
