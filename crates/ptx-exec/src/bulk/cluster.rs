//! Shared memory of other blocks of the cluster.
//!
//! As on hardware, a shared-memory address holds the rank of its block from bit 24 on, including
//! addresses of the block itself.

use super::copies::{Issuer, Load};
use super::extent::Extent;
use super::mbarrier::Arrival;
use super::{AsyncProxy, undefined};
use crate::access::Memories;
use crate::fault::FaultKind;
use crate::undefined::ProxyMisuse;

/// Bits of an address in the shared memory of a block.
const ADDRESS_BITS: u32 = 24;

/// The first address of the shared memory of the block with index `rank` in its cluster.
pub(crate) fn shared_base(rank: u32) -> u64 {
    u64::from(rank) << ADDRESS_BITS
}

/// The rank of the block in whose shared memory `address` is.
pub(crate) fn rank_of(address: u64) -> u32 {
    (address >> ADDRESS_BITS) as u32
}

/// The address in block `rank` with the same offset as `address` in its block.
fn in_block(rank: u32, address: u64) -> u64 {
    shared_base(rank) + (address & ((1 << ADDRESS_BITS) - 1))
}

/// The position of a block in its cluster.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClusterPosition {
    pub(super) rank: u32,
    pub(super) blocks: u32,
}

impl Default for ClusterPosition {
    fn default() -> Self {
        Self { rank: 0, blocks: 1 }
    }
}

impl ClusterPosition {
    fn check(self, rank: u32) -> Result<(), FaultKind> {
        if rank < self.blocks {
            return Ok(());
        }
        undefined(ProxyMisuse::ClusterRank { rank, blocks: self.blocks })
    }

    /// `mapa` of an address in shared memory.
    pub(super) fn map(self, address: u64, rank: u32) -> Result<u64, FaultKind> {
        self.check(rank)?;
        let window = address & !u64::from(u32::MAX);
        Ok(window + in_block(rank, address))
    }

    /// The block of an address.
    pub(super) fn block_of(self, address: u64) -> Result<u32, FaultKind> {
        let rank = rank_of(address);
        self.check(rank)?;
        Ok(rank)
    }

    /// The blocks in a mask.
    pub(super) fn blocks_of(self, mask: u64) -> Result<impl Iterator<Item = u32>, FaultKind> {
        let mask = mask as u16;
        if mask != 0 {
            self.check(mask.ilog2())?;
        }
        Ok((0..16).filter(move |rank| mask >> rank & 1 == 1))
    }
}

/// An effect on another block of the cluster.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    /// The rank of the affected block.
    pub(crate) rank: u32,
    pub(crate) issuer: Issuer,
    pub(super) effect: Effect,
}

#[derive(Clone, Debug)]
pub(super) enum Effect {
    /// An arrival at the mbarrier at an address.
    Arrive { address: u64, arrival: Arrival },
    /// An addition to the transaction count of the mbarrier at an address.
    CountBytes { address: u64, bytes: i64 },
    /// A load to shared memory.
    Load { shared: u64, extent: Extent, mbarrier: u64 },
}

impl AsyncProxy {
    /// Returns the effects on other blocks since the last call.
    pub(crate) fn take_messages(&mut self) -> Vec<Message> {
        std::mem::take(&mut self.messages)
    }

    /// Applies an effect of another block.
    pub(crate) fn receive(
        &mut self,
        memories: &mut Memories<'_>,
        message: &Message,
    ) -> Result<(), FaultKind> {
        match &message.effect {
            Effect::Arrive { address, arrival } => {
                self.barriers.arrive(memories, *address, *arrival)?;
            }
            Effect::CountBytes { address, bytes } => {
                self.barriers.count_bytes(memories, *address, *bytes)?;
            }
            Effect::Load { shared, extent, mbarrier } => {
                let issuer = Issuer { is_peer: true, ..message.issuer };
                let (shared, mbarrier) = (*shared, *mbarrier);
                let load = Load { issuer, shared, extent: extent.clone(), mbarrier };
                self.load(memories, load)?;
            }
        }
        Ok(())
    }

    /// Starts a load to the blocks of `mask`; without a mask, to the block of the address `shared`.
    pub(super) fn load_to_blocks(
        &mut self,
        memories: &mut Memories<'_>,
        load: Load,
        mask: Option<u64>,
    ) -> Result<(), FaultKind> {
        let Load { shared, mbarrier, .. } = load;
        let (target, of_mbarrier) =
            (self.position.block_of(shared)?, self.position.block_of(mbarrier)?);
        if target != of_mbarrier {
            return undefined(ProxyMisuse::ClusterMbarrier { target, mbarrier: of_mbarrier });
        }
        let ranks: Vec<u32> = match mask {
            Some(mask) => self.position.blocks_of(mask)?.collect(),
            None => vec![target],
        };
        for rank in ranks {
            if rank == self.position.rank {
                self.load(memories, load.clone())?;
            } else {
                let [shared, mbarrier] = [shared, mbarrier].map(|address| in_block(rank, address));
                let effect = Effect::Load { shared, extent: load.extent.clone(), mbarrier };
                self.messages.push(Message { rank, issuer: load.issuer, effect });
            }
        }
        Ok(())
    }
}
