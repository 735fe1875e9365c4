//! Queries for driver entry points.

use crate::enumeration::{enumerations, flags};

flags! {
    /// Flags of `cuGetProcAddress_v2`: the meaning of the null stream for the function.
    CUdriverProcAddress_flags: u64 {
        /// The default: the legacy stream.
        CU_GET_PROC_ADDRESS_DEFAULT = 0;
        /// The legacy stream.
        CU_GET_PROC_ADDRESS_LEGACY_STREAM = 1;
        /// The default stream of the calling thread.
        CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM = 2;
    }
}

enumerations! {
    /// The result of a lookup by `cuGetProcAddress_v2`.
    CUdriverProcAddressQueryResult: u32 {
        /// Found.
        CU_GET_PROC_ADDRESS_SUCCESS = 0;
        /// The driver has no function of this name.
        CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND = 1;
        /// The driver only has a newer form.
        CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT = 2;
    }
}
