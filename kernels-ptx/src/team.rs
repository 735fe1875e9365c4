//! Who works on one row: the lanes of a warp or the threads of a block.

use retrograph_ptx::build::{Kernel, Value};

/// The threads that share a row.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Team {
    /// One warp; a block has this many of them, each with a row of its own.
    Warp { per_block: u32 },
    /// One block of this many threads.
    Block { threads: u32 },
}

impl Team {
    /// The row of this thread's team. Where teams are warps it may lie past the last row.
    pub(crate) fn row<'k>(self, k: &Kernel<'k>) -> Value<'k, u32> {
        match self {
            Self::Warp { per_block } => k.ctaid_x() * per_block + k.warp(),
            Self::Block { .. } => k.ctaid_x(),
        }
    }

    /// The index of this thread in its team.
    pub(crate) fn member<'k>(self, k: &Kernel<'k>) -> Value<'k, u32> {
        match self {
            Self::Warp { .. } => k.lane(),
            Self::Block { .. } => k.tid_x(),
        }
    }

    /// Number of threads in a team.
    pub(crate) fn size(self) -> u32 {
        match self {
            Self::Warp { .. } => 32,
            Self::Block { threads } => threads,
        }
    }

    /// Threads of a block.
    pub(crate) fn threads(self) -> u32 {
        match self {
            Self::Warp { per_block } => 32 * per_block,
            Self::Block { threads } => threads,
        }
    }

    /// The sum over the team, in a fixed order.
    pub(crate) fn sum<'k>(self, k: &Kernel<'k>, value: Value<'k, f32>) -> Value<'k, f32> {
        match self {
            Self::Warp { .. } => k.warp_sum(value),
            Self::Block { .. } => k.block_sum(value),
        }
    }

    /// The greatest value over the team; NaN gives way to numbers.
    pub(crate) fn max<'k>(self, k: &Kernel<'k>, value: Value<'k, f32>) -> Value<'k, f32> {
        match self {
            Self::Warp { .. } => k.warp_max(value),
            Self::Block { .. } => k.block_max(value),
        }
    }
}
