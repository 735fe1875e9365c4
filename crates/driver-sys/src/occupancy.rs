//! Occupancy: flags and the callback.

use crate::enumeration::flags;

flags! {
    /// Flags of the occupancy functions.
    CUoccupancy_flags: u32 {
        /// Default.
        CU_OCCUPANCY_DEFAULT = 0;
        /// Ignores the effect of caching on occupancy.
        CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE = 1;
    }
}

/// A function from the threads of a block to its bytes of dynamic shared memory.
pub type CUoccupancyB2DSize = Option<unsafe extern "C" fn(block_size: i32) -> usize>;
