//! Occupancy: resident blocks and clusters.

/// Passes on the functions of this area; see [`driver_functions!`](crate::driver_functions).
#[doc(hidden)]
#[macro_export]
macro_rules! __occupancy_functions {
    ($next:ident $($state:tt)*) => {
        $crate::$next! { $($state)*
        required {
            /// Writes the number of blocks that fit on a multiprocessor.
            fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
                blocks: *mut i32, function: $crate::CUfunction, block_size: i32,
                dynamic_shared_bytes: usize
            );
            /// Writes the number of blocks that fit on a multiprocessor; flags are
            /// `CU_OCCUPANCY_…`.
            fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
                blocks: *mut i32, function: $crate::CUfunction, block_size: i32,
                dynamic_shared_bytes: usize, flags: u32
            );
            /// Writes the block size, in threads, with the highest occupancy, and the smallest grid
            /// that fills the device. `block_size_limit` 0 means no limit; with a callback, dynamic
            /// shared memory depends on the block size.
            fn cuOccupancyMaxPotentialBlockSize(
                min_grid_size: *mut i32, block_size: *mut i32, function: $crate::CUfunction,
                block_size_to_dynamic_smem_size: $crate::CUoccupancyB2DSize,
                dynamic_shared_bytes: usize, block_size_limit: i32
            );
            /// As `cuOccupancyMaxPotentialBlockSize`, with flags `CU_OCCUPANCY_…`.
            fn cuOccupancyMaxPotentialBlockSizeWithFlags(
                min_grid_size: *mut i32, block_size: *mut i32, function: $crate::CUfunction,
                block_size_to_dynamic_smem_size: $crate::CUoccupancyB2DSize,
                dynamic_shared_bytes: usize, block_size_limit: i32, flags: u32
            );
            /// Writes the bytes of dynamic shared memory that a block may use if `blocks` blocks
            /// have to fit on a multiprocessor.
            fn cuOccupancyAvailableDynamicSMemPerBlock(
                dynamic_shared_bytes: *mut usize, function: $crate::CUfunction, blocks: i32,
                block_size: i32
            );
            /// Writes the maximum cluster size of a launch with this configuration.
            fn cuOccupancyMaxPotentialClusterSize(
                size: *mut i32, function: $crate::CUfunction, config: *const $crate::CUlaunchConfig
            );
            /// Writes the number of clusters of this configuration that fit on the device.
            fn cuOccupancyMaxActiveClusters(
                clusters: *mut i32, function: $crate::CUfunction,
                config: *const $crate::CUlaunchConfig
            );
        }
        optional {
        }
        }
    };
}
