//! One collective, as a pass describes it and a communicator enqueues it.

use retrograph_nccl_sys::ncclDataType_t;

use super::Ranks;

/// The kind of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CollectiveKind {
    /// All ranks get the sum.
    AllReduce,
    /// Each rank gets its block of the sum.
    ReduceScatter,
    /// All ranks get the blocks of all ranks.
    AllGather,
    /// All ranks get the elements of one rank.
    Broadcast {
        /// That rank.
        root: usize,
    },
}

impl CollectiveKind {
    /// The name of the operation.
    pub fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all_reduce",
            Self::ReduceScatter => "reduce_scatter",
            Self::AllGather => "all_gather",
            Self::Broadcast { .. } => "broadcast",
        }
    }
}

/// A collective whose ranges are declared from position `first_range` on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Collective {
    pub(crate) kind: CollectiveKind,
    pub(crate) data_type: ncclDataType_t,
    /// Elements as NCCL counts them: of one block for collectives of blocks.
    pub(crate) count: usize,
    pub(crate) first_range: usize,
}

impl Collective {
    /// Bytes of the exchanged elements, over all blocks.
    pub(crate) fn bytes(&self, ranks: Ranks, element_bytes: usize) -> usize {
        let blocks = match self.kind {
            CollectiveKind::AllReduce | CollectiveKind::Broadcast { .. } => 1,
            CollectiveKind::ReduceScatter | CollectiveKind::AllGather => ranks.world_size,
        };
        self.count * blocks * element_bytes
    }
}
