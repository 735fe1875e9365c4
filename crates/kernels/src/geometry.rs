//! Launch geometry that kernel families share.

use retrograph_kernel_abi::RowKernel;

use retrograph_kernel_abi::elementwise::ELEMENTS_PER_THREAD;

pub(crate) use crate::launch::SMS;
use crate::launch::{Dispatch, PersistentBlocks};

/// The largest x extent of a grid.
pub(crate) const MAX_GRID_X: usize = 0x7fff_ffff;
/// The largest y and z extent of a grid.
pub(crate) const MAX_GRID_YZ: usize = 65_535;

/// The largest extent of the operands of a matrix product, so that indices past the end of a padded
/// tile fit in 32 bits.
pub(crate) const MAX_EXTENT: usize = 0x7fff_ffff;

/// Threads of a block of an elementwise kernel.
const ELEMENTWISE_THREADS: u32 = 256;

/// One thread for every [`ELEMENTS_PER_THREAD`] of `count` elements.
pub(crate) fn elementwise(entry: &'static str, count: u32) -> Dispatch {
    let blocks = count.div_ceil(ELEMENTS_PER_THREAD).div_ceil(ELEMENTWISE_THREADS);
    linear(entry, blocks, ELEMENTWISE_THREADS)
}

/// One thread for each four of `count` elements.
pub(crate) fn per_vec4(entry: &'static str, count: u32) -> Dispatch {
    linear(entry, count.div_ceil(4).div_ceil(ELEMENTWISE_THREADS), ELEMENTWISE_THREADS)
}

/// `blocks` blocks of `threads` threads.
pub(crate) fn linear(entry: &'static str, blocks: u32, threads: u32) -> Dispatch {
    let (grid, block) = ([blocks, 1, 1], [threads, 1, 1]);
    Dispatch { entry, grid, block, shared_bytes: 0, persistent: None }
}

/// Persistent blocks of `threads` threads: at most `resident`.
pub(crate) fn persistent(
    entry: &'static str,
    blocks: u32,
    resident: u32,
    threads: u32,
) -> Dispatch {
    let persistent = Some(PersistentBlocks { resident, cluster: 1 });
    Dispatch { persistent, ..linear(entry, blocks.min(resident), threads) }
}

/// The widest row with one warp, in kernels that also have an entry with one block per row.
const MAX_WARP_WIDTH: u32 = 1024;

/// One warp per narrow row, or one block per wide row.
pub(crate) fn per_row(kernel: &RowKernel, rows: u32, width: u32) -> Dispatch {
    if width <= MAX_WARP_WIDTH {
        linear(kernel.warp_per_row(), rows.div_ceil(kernel.warps), kernel.warps * 32)
    } else {
        linear(kernel.block_per_row(), rows, kernel.block_threads)
    }
}

/// Threads for a row of `width` elements: one for each four, in whole warps, at most 256.
pub(crate) fn row_threads(width: u32) -> u32 {
    width.div_ceil(4).clamp(1, 256).next_power_of_two().max(32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_has_a_thread_and_no_block_is_empty() {
        let blocks = |count: u32| elementwise("e", count).grid[0];
        assert_eq!((blocks(0), blocks(1), blocks(2048), blocks(2049)), (0, 1, 1, 2));
        assert_eq!(blocks(u32::MAX), 1 << 21);
        let blocks = |count: u32| per_vec4("e", count).grid[0];
        assert_eq!((blocks(0), blocks(1), blocks(1024), blocks(1025)), (0, 1, 1, 2));
        assert_eq!(blocks(u32::MAX), 1 << 22);
        let threads = [0, 1, 128, 129, 1000, u32::MAX].map(row_threads);
        assert_eq!(threads, [32, 32, 32, 64, 256, 256]);
    }
}
