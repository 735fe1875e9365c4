//! Thread groups that process one row together: a warp or a block.

use retrograph_kernel_abi::RowKernel;
use retrograph_ptx::build::{Kernel, Value};

/// The threads that share a row.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ThreadGroup {
    /// One warp. A block has `per_block` of them, each with a row of its own.
    Warp { per_block: u32 },
    /// One block of `threads` threads.
    Block { threads: u32 },
}

impl ThreadGroup {
    /// The entries of `kernel`, each with the group that has a row.
    pub(crate) fn of_entries(kernel: &RowKernel) -> [(&'static str, Self); 2] {
        [
            (kernel.warp_per_row(), Self::Warp { per_block: kernel.warps }),
            (kernel.block_per_row(), Self::Block { threads: kernel.block_threads }),
        ]
    }

    /// The row of this thread's group. With warps it may be past the last row.
    pub(crate) fn row<'k>(self, k: &Kernel<'k>) -> Value<'k, u32> {
        match self {
            Self::Warp { per_block } => k.ctaid_x() * per_block + k.warp(),
            Self::Block { .. } => k.ctaid_x(),
        }
    }

    /// The index of this thread in its group.
    pub(crate) fn thread_rank<'k>(self, k: &Kernel<'k>) -> Value<'k, u32> {
        match self {
            Self::Warp { .. } => k.lane(),
            Self::Block { .. } => k.tid_x(),
        }
    }

    /// Threads of a group.
    pub(crate) fn size(self) -> u32 {
        match self {
            Self::Warp { .. } => 32,
            Self::Block { threads } => threads,
        }
    }

    /// Threads of a block.
    pub(crate) fn block_threads(self) -> u32 {
        match self {
            Self::Warp { per_block } => 32 * per_block,
            Self::Block { threads } => threads,
        }
    }

    /// The sum over the group, in a fixed order.
    pub(crate) fn sum<'k>(self, k: &Kernel<'k>, value: Value<'k, f32>) -> Value<'k, f32> {
        match self {
            Self::Warp { .. } => k.warp_sum(value),
            Self::Block { .. } => k.block_sum(value),
        }
    }

    /// The maximum over the group, ignoring NaN.
    pub(crate) fn max<'k>(self, k: &Kernel<'k>, value: Value<'k, f32>) -> Value<'k, f32> {
        match self {
            Self::Warp { .. } => k.warp_max(value),
            Self::Block { .. } => k.block_max(value),
        }
    }
}
