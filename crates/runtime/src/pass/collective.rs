//! Collectives between devices as operations: described without a device, in place.

use retrograph_kernel_abi::{DType, Element};
use retrograph_nccl_sys::ncclDataType_t;

use super::Pass;
use super::buffer::Slice;
use super::error::PassError;
use super::library::LibraryCall;
use super::operation::{OpId, OperationKind};
use crate::library::{Collective, CollectiveKind, Ranks};

/// Collectives that NCCL runs together, in one launch if possible. All are in place.
///
/// Sums are in the dtype of the elements. Deterministic for the same devices, sizes and NCCL; ranks
/// get the same bits.
///
/// ```
/// use retrograph_runtime::{CollectiveGroup, Pass, Ranks};
///
/// let mut pass = Pass::new("mean of two devices");
/// let grad = pass.external::<f32>("grad", 8);
/// let group = CollectiveGroup::new(Ranks { rank: 0, world_size: 2 }).all_reduce(grad)?;
/// pass.collectives(group)?;
/// // The program then needs a communicator: `bindings.communicator(&communicator)`.
/// assert_eq!(pass.operations()[0].name(), "all_reduce");
/// # Ok::<(), retrograph_runtime::PassError>(())
/// ```
#[derive(Clone, Debug)]
pub struct CollectiveGroup {
    ranks: Ranks,
    collectives: Vec<Collective>,
    /// Bytes of all elements.
    bytes: usize,
    call: LibraryCall,
}

impl CollectiveGroup {
    /// Returns an empty group. Adding a collective fails if `ranks` is not valid.
    pub fn new(ranks: Ranks) -> Self {
        let call = LibraryCall::collectives(ranks);
        Self { ranks, collectives: Vec::new(), bytes: 0, call }
    }

    /// Whether there are no collectives.
    pub fn is_empty(&self) -> bool {
        self.collectives.is_empty()
    }

    /// Bytes of the elements that are exchanged.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds the sum of `slice` over all ranks; every rank gets the sum.
    ///
    /// # Errors
    /// [`PassError::NotCollective`] for elements that NCCL does not support,
    /// [`PassError::NoSuchRank`].
    pub fn all_reduce<T: Element>(self, slice: Slice<T>) -> Result<Self, PassError> {
        self.add::<T>(CollectiveKind::AllReduce, slice.len(), |call, _| call.updates(slice))
    }

    /// Adds the sum of `slice` over all ranks. Each rank gets its block ([`Ranks::block`]); the
    /// other blocks keep their values.
    ///
    /// # Errors
    /// [`PassError::NotDivisible`], [`PassError::NotCollective`], [`PassError::NoSuchRank`].
    pub fn reduce_scatter<T: Element>(self, slice: Slice<T>) -> Result<Self, PassError> {
        let block = self.block(slice)?;
        self.add::<T>(CollectiveKind::ReduceScatter, block.len(), |call, _| {
            call.reads(slice).updates(slice.slice(block.clone()))
        })
    }

    /// Adds the exchange of blocks: each rank gives its block of `slice` and gets all others.
    ///
    /// # Errors
    /// [`PassError::NotDivisible`], [`PassError::NotCollective`], [`PassError::NoSuchRank`].
    pub fn all_gather<T: Element>(self, slice: Slice<T>) -> Result<Self, PassError> {
        let block = self.block(slice)?;
        self.add::<T>(CollectiveKind::AllGather, block.len(), |call, _| {
            let others = [slice.slice(0..block.start), slice.slice(block.end..slice.len())];
            call.writes(others[0]).reads(slice.slice(block.clone())).writes(others[1])
        })
    }

    /// Adds a copy of `slice` from the rank `root` to all others.
    ///
    /// # Errors
    /// [`PassError::NoSuchRank`], [`PassError::NotCollective`].
    pub fn broadcast<T: Element>(self, slice: Slice<T>, root: usize) -> Result<Self, PassError> {
        let count = self.ranks.world_size;
        if root >= count {
            return Err(PassError::NoSuchRank { rank: root, count });
        }
        self.add::<T>(CollectiveKind::Broadcast { root }, slice.len(), |call, ranks| {
            if ranks.rank == root { call.reads(slice) } else { call.writes(slice) }
        })
    }

    fn block<T: Element>(&self, slice: Slice<T>) -> Result<std::ops::Range<usize>, PassError> {
        self.require_valid_ranks()?;
        let (len, count) = (slice.len(), self.ranks.world_size);
        if len.is_multiple_of(count) {
            return Ok(self.ranks.block(len));
        }
        Err(PassError::NotDivisible { len, count })
    }

    fn require_valid_ranks(&self) -> Result<(), PassError> {
        let Ranks { rank, world_size: count } = self.ranks;
        if self.ranks.is_valid() { Ok(()) } else { Err(PassError::NoSuchRank { rank, count }) }
    }

    fn add<T: Element>(
        mut self,
        kind: CollectiveKind,
        count: usize,
        declare: impl FnOnce(LibraryCall, Ranks) -> LibraryCall,
    ) -> Result<Self, PassError> {
        self.require_valid_ranks()?;
        let dtype = T::DTYPE;
        let data_type = data_type(dtype).ok_or(PassError::NotCollective { dtype })?;
        let first_range = self.call.declared().len();
        let collective = Collective { kind, data_type, count, first_range };
        self.bytes += collective.bytes(self.ranks, size_of::<T>());
        self.collectives.push(collective);
        self.call = declare(self.call, self.ranks);
        Ok(self)
    }
}

fn data_type(dtype: DType) -> Option<ncclDataType_t> {
    Some(match dtype {
        DType::F32 => ncclDataType_t::ncclFloat32,
        DType::F64 => ncclDataType_t::ncclFloat64,
        DType::Bf16 => ncclDataType_t::ncclBfloat16,
        DType::F16 => ncclDataType_t::ncclFloat16,
        DType::U8 => ncclDataType_t::ncclUint8,
        DType::U32 => ncclDataType_t::ncclUint32,
        DType::U64 => ncclDataType_t::ncclUint64,
        DType::Nf4 => return None,
    })
}

impl Pass {
    /// Appends collectives; the program needs
    /// [`Bindings::communicator`](crate::Bindings::communicator). They wait for all earlier
    /// collectives of the pass, since all ranks must run them in the same order.
    ///
    /// # Errors
    /// [`PassError::NoCollectives`] for an empty group, [`PassError::OtherRanks`] if earlier
    /// collectives have other ranks, or a slice is refused.
    pub fn collectives(&mut self, group: CollectiveGroup) -> Result<OpId, PassError> {
        let CollectiveGroup { ranks, collectives, bytes, call } = group;
        if collectives.is_empty() {
            return Err(PassError::NoCollectives);
        }
        if let Some((held, _)) = self.collective_order.filter(|(held, _)| *held != ranks) {
            return Err(PassError::OtherRanks { ranks, held });
        }
        let call = call.with_collectives(collectives, bytes);
        // Checked first, so that a refused group declares no buffer.
        self.checked(OperationKind::Library(call.clone()))?;
        let order = match self.collective_order {
            Some((_, order)) => order,
            // Stores no data: a write orders each collective after the previous one.
            None => self.transient::<u32>("collectives/order", 1),
        };
        self.collective_order = Some((ranks, order));
        self.append(OperationKind::Library(call.writes(order)))
    }
}
