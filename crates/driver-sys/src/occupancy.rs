//! Occupancy: flags and the callback.

use crate::enumeration::flags;

flags! {
    /// Flags of the occupancy functions.
    CUoccupancy_flags: u32 {
        /// Nothing special.
        CU_OCCUPANCY_DEFAULT = 0;
        /// As if caching did not limit how many blocks fit.
        CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE = 1;
    }
}

/// A function from the threads of a block to its bytes of dynamic shared memory.
pub type CUoccupancyB2DSize = Option<unsafe extern "C" fn(block_size: i32) -> usize>;
