//! Launch geometry that families share.

use crate::{Dispatch, SmTarget};

/// The largest x extent of a grid.
pub(crate) const MAX_GRID_X: usize = 0x7fff_ffff;
/// The largest y and z extent of a grid.
pub(crate) const MAX_GRID_YZ: usize = 65_535;

/// Threads of a block of an elementwise kernel, with four elements each.
const ELEMENTWISE_THREADS: u32 = 256;

/// One thread for each four of `count` elements.
pub(crate) fn elementwise(entry: &'static str, count: u32) -> Dispatch {
    let blocks = count.div_ceil(4).div_ceil(ELEMENTWISE_THREADS);
    linear(entry, blocks, ELEMENTWISE_THREADS)
}

/// `blocks` blocks of `threads` threads.
pub(crate) fn linear(entry: &'static str, blocks: u32, threads: u32) -> Dispatch {
    Dispatch { entry, grid: [blocks, 1, 1], block: [threads, 1, 1], shared_bytes: 0 }
}

/// Threads for a row of `width` elements: one for each four, in whole warps, 256 at most.
pub(crate) fn row_threads(width: u32) -> u32 {
    width.div_ceil(4).clamp(1, 256).next_power_of_two().max(32)
}

/// Whether a block has at most 64 KiB of shared memory on `target`.
pub(crate) fn has_little_shared_memory(target: SmTarget) -> bool {
    target.features().smem_bytes_per_block <= 64 << 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_has_a_thread_and_no_block_is_empty() {
        let blocks = |count: u32| elementwise("e", count).grid[0];
        assert_eq!((blocks(0), blocks(1), blocks(1024), blocks(1025)), (0, 1, 1, 2));
        assert_eq!(blocks(u32::MAX), 1 << 22);
        let threads = [0, 1, 128, 129, 1000, u32::MAX].map(row_threads);
        assert_eq!(threads, [32, 32, 32, 64, 256, 256]);
    }
}
