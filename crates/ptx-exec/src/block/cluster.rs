//! Interaction of a block with its cluster and its grid.

use super::{BlockFault, BlockRunner};
use crate::barrier::Barriers;
use crate::bulk::Message;
use crate::fault::FaultKind;
use crate::memory::Span;
use crate::races::Barrier;
use crate::undefined::Undefined;

impl BlockRunner<'_> {
    /// The block, `%ctaid`.
    pub(crate) fn ctaid(&self) -> [u32; 3] {
        self.ctaid
    }

    /// Warp instructions that the block has executed.
    pub(crate) fn executed(&self) -> u64 {
        self.machine.executed
    }

    pub(crate) fn barriers(&self) -> &Barriers {
        &self.barriers
    }

    /// Warps of the block.
    pub(crate) fn warps(&self) -> usize {
        self.warps.len()
    }

    /// The shared memory of the block, once it has begun.
    pub(crate) fn shared_memory(&self) -> Span {
        self.machine.memories.shared
    }

    /// Sets the shared memory of all blocks of the cluster, by rank; `None` for a block that has
    /// ended.
    pub(crate) fn set_cluster_memory(&mut self, blocks: &[Option<Span>]) {
        self.machine.memories.cluster.clear();
        self.machine.memories.cluster.extend_from_slice(blocks);
    }

    /// Whether the block is the only one of its cluster.
    pub(super) fn is_alone(&self) -> bool {
        self.launch.blocks_per_cluster() == 1
    }

    /// Returns the effects on other blocks since the last call.
    pub(crate) fn take_messages(&mut self) -> Vec<Message> {
        self.machine.memories.proxy.as_mut().map_or_else(Vec::new, |proxy| proxy.take_messages())
    }

    /// Applies an effect of another block.
    pub(crate) fn receive(&mut self, message: &Message) -> Result<(), FaultKind> {
        let memories = &mut self.machine.memories;
        let Some(mut proxy) = memories.proxy.take() else { return Ok(()) };
        let received = proxy.receive(memories, message);
        memories.proxy = Some(proxy);
        received
    }

    /// Executes `barrier.cluster` of a warp. Returns whether it can continue immediately.
    pub(super) fn cluster_barrier(
        &mut self,
        warp: usize,
        arrives: bool,
    ) -> Result<bool, BlockFault> {
        let phase = match arrives {
            true => self.barriers.arrive_cluster(warp).map(|phase| (phase, true)),
            false => self.barriers.wait_cluster(warp),
        };
        let Some((phase, continues)) = phase else {
            return Err(self.fault_before(FaultKind::Undefined(Undefined::ClusterBarrier), warp));
        };
        if let Some(races) = &self.machine.memories.races {
            match arrives {
                true => races.arrive(Barrier::Cluster(phase), warp),
                false if continues => races.release(Barrier::Cluster(phase), warp),
                false => {}
            }
        }
        Ok(continues)
    }

    /// Opens the barrier of a single-block cluster if all warps have arrived.
    pub(super) fn release_cluster(&mut self) -> bool {
        let opens = self.barriers.has_cluster_arrived() && self.barriers.awaits_cluster();
        if opens {
            self.open_cluster_barrier();
        }
        opens
    }

    /// Opens the cluster barrier, at which all warps of the cluster have arrived.
    pub(crate) fn open_cluster_barrier(&mut self) {
        let (phase, released) = self.barriers.open_cluster();
        if let Some(races) = &self.machine.memories.races {
            released.into_iter().for_each(|warp| races.release(Barrier::Cluster(phase), warp));
        }
    }

    /// Makes a warp wait at the grid barrier.
    pub(super) fn wait_for_grid(&mut self, warp: usize) {
        self.barriers.wait_grid(warp);
        if let Some(races) = &self.machine.memories.races {
            races.arrive(Barrier::Grid, warp);
        }
    }

    /// Opens the grid barrier, at which all warps of the grid have arrived.
    pub(crate) fn open_grid_barrier(&mut self) {
        let released = self.barriers.open_grid();
        if let Some(races) = &self.machine.memories.races {
            released.into_iter().for_each(|warp| races.release(Barrier::Grid, warp));
        }
    }
}
