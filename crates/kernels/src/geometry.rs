//! Launch geometry that the row-wise, streaming and list kernels share.

use crate::{Dispatch, Problem};

/// The largest x extent of a grid.
pub(crate) const MOST_BLOCKS: usize = 0x7fff_ffff;

/// Threads of a block that streams over elements, four for each thread.
const STREAM_THREADS: u32 = 256;

/// One thread for each four of the `problem.sizes[0]` elements.
pub(crate) fn streaming(entry: &'static str, problem: &Problem) -> Dispatch {
    let blocks = problem.sizes[0].div_ceil(4).div_ceil(STREAM_THREADS);
    linear(entry, blocks, STREAM_THREADS)
}

/// `blocks` blocks of `threads` threads.
pub(crate) fn linear(entry: &'static str, blocks: u32, threads: u32) -> Dispatch {
    Dispatch { entry, grid: [blocks, 1, 1], block: [threads, 1, 1], shared_bytes: 0 }
}

/// Threads for a row of `width` elements: one for each four, in whole warps, 256 at most.
pub(crate) fn row_threads(width: u32) -> u32 {
    width.div_ceil(4).clamp(1, 256).next_power_of_two().max(32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_has_a_thread_and_none_are_wasted_on_nothing() {
        let blocks = |n: u32| streaming("e", &Problem::from([n])).grid[0];
        assert_eq!((blocks(0), blocks(1), blocks(1024), blocks(1025)), (0, 1, 1, 2));
        assert_eq!(blocks(u32::MAX), 1 << 22);
        let threads = [0, 1, 128, 129, 1000, u32::MAX].map(row_threads);
        assert_eq!(threads, [32, 32, 32, 64, 256, 256]);
    }
}
