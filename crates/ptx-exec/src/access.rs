//! Loads and stores.
//!
//! [`super::words`] checks common accesses for all lanes of a warp at once. Other accesses, and
//! accesses that fail this check, run lane by lane through [`Memories::resolve`], which finds the
//! faulting lane.

use std::cell::Cell;
use std::ops::Range;

use retrograph_ptx::ast::StateSpace;

use super::bulk::{AsyncProxy, rank_of};
use super::fault::FaultKind;
use super::program::Access;
use super::races::{AccessKind, BlockRaces, LaneAccess};
use super::registers::{ActiveLanes, Offset};
use super::undefined::ProxyMisuse;
use super::unfenced::Unfenced;
use super::words::addresses;
use crate::memory::{Snapshot, Span};

/// First generic address of shared memory.
pub(super) const SHARED_WINDOW: u64 = 0x6f00_0000_0000;

/// Whether a generic address is in shared memory.
pub(super) fn is_shared_address(address: u64) -> bool {
    address.wrapping_sub(SHARED_WINDOW) < WINDOW
}

/// First generic address of local memory.
pub(super) const LOCAL_WINDOW: u64 = 0x6e00_0000_0000;
/// First generic address of the parameters.
pub(super) const PARAM_WINDOW: u64 = 0x6d00_0000_0000;
/// Size of each window.
const WINDOW: u64 = 1 << 32;

/// A fault and its lane.
pub(super) type LaneFault = (FaultKind, u32);

/// The memories that the threads of a block access.
pub(super) struct Memories<'a> {
    /// Global memory.
    pub(super) global: &'a Snapshot,
    /// The most recent allocation of each access of the program.
    pub(super) spans: Vec<Span>,
    /// The allocation that [`Self::global_span`] found last.
    pub(super) found: Cell<Span>,
    /// Whether a thread has changed global memory since this was last reset.
    pub(super) has_changed_global: Cell<bool>,
    /// The shared memory of the running block.
    pub(super) shared: Span,
    /// The shared memory of all blocks of the cluster, by rank; `None` for a block that has ended.
    pub(super) cluster: Vec<Option<Span>>,
    /// The local memory of the running warp, lane after lane.
    pub(super) local: *mut u8,
    /// Bytes of local memory of one lane.
    pub(super) local_bytes: u32,
    /// The parameter block.
    pub(super) parameters: &'a [u8],
    /// The race detector, if it is enabled.
    pub(super) races: Option<BlockRaces<'a>>,
    /// The running warp, and its instruction in a lane-by-lane access.
    pub(super) warp: usize,
    pub(super) pc: u32,
    /// Unfenced writes, in programs with `wgmma` or bulk copies.
    pub(super) unfenced: Option<Unfenced>,
    /// Barriers in shared memory and bulk copies, in programs that have any.
    pub(super) proxy: Option<Box<AsyncProxy>>,
}

impl Memories<'_> {
    /// Reports an access of a lane to the race detector, if it is enabled.
    #[inline(always)]
    pub(super) fn watch(
        &mut self,
        access: &Access,
        lane: usize,
        address: u64,
        bytes: u32,
        kind: AccessKind,
    ) -> Result<(), FaultKind> {
        if self.proxy.is_some() {
            self.check_async(access.space, address, u64::from(bytes), kind)?;
        }
        let Some(races) = &mut self.races else { return Ok(()) };
        let (space, address) = locate(access.space, address);
        let (warp, pc, strong) = (self.warp, self.pc, access.strong);
        let bytes = (address, u64::from(bytes));
        races.record(&LaneAccess { space, bytes, warp, lane, pc, strong }, kind)
    }

    /// Marks shared memory of this block that `wgmma` may read only after a fence.
    #[inline(always)]
    pub(super) fn mark_unfenced(&mut self, space: Option<StateSpace>, address: u64, bytes: u64) {
        let Some(unfenced) = &mut self.unfenced else { return };
        if let (StateSpace::Shared, address) = locate(space, address)
            && (self.shared.base..self.shared.end).contains(&address)
        {
            unfenced.write(self.warp, address, bytes);
        }
    }

    /// Removes the marks of shared memory that the async proxy has written.
    pub(super) fn forget_unfenced(&mut self, address: u64, bytes: u64) {
        self.unfenced.iter_mut().for_each(|unfenced| unfenced.forget(address, bytes));
    }

    /// The first address in `bytes` of shared memory with an unfenced write.
    pub(super) fn first_unfenced(&self, bytes: &Range<u64>) -> Option<u64> {
        self.unfenced.as_ref()?.first_in(bytes)
    }

    /// The allocation that holds `[low, high)`.
    #[inline(always)]
    pub(super) fn span<const SHARED: bool>(
        &mut self,
        access: usize,
        low: u64,
        high: u64,
    ) -> Option<Span> {
        if SHARED {
            let inside = low >= self.shared.base && high <= self.shared.end;
            return inside.then_some(self.shared);
        }
        debug_assert!(access < self.spans.len());
        // SAFETY: the index comes from decoding, and there is a span for every access.
        let span = unsafe { self.spans.get_unchecked_mut(access) };
        if low >= span.base && high <= span.end {
            return Some(*span);
        }
        let found = self.global.find(low)?;
        *span = found;
        (high <= found.end).then_some(found)
    }

    /// The allocation of global memory that has `address`.
    #[inline(always)]
    pub(super) fn global_span(&self, address: u64) -> Option<Span> {
        let mut span = self.found.get();
        if address < span.base || address >= span.end {
            span = self.global.find(address)?;
            self.found.set(span);
        }
        Some(span)
    }

    /// The shared memory that has `address`: of this block or, if the access can reach it, of
    /// another block of the cluster.
    fn shared_memory(&self, access: &Access, address: u64) -> Result<Span, FaultKind> {
        let rank = rank_of(address);
        match self.cluster.get(rank as usize) {
            Some(found) if access.reaches_cluster => found.ok_or_else(|| {
                FaultKind::AsyncProxy(Box::new(ProxyMisuse::ClusterBlockEnded { rank }))
            }),
            Some(_) if rank != rank_of(self.shared.base) => {
                Err(FaultKind::OtherBlock { address, bytes: access.bytes * access.count })
            }
            _ => Ok(self.shared),
        }
    }

    /// The host address of an access of a lane, if it is in bounds.
    pub(super) fn resolve(
        &self,
        access: &Access,
        lane: usize,
        address: u64,
    ) -> Result<*mut u8, FaultKind> {
        let bytes = access.bytes * access.count;
        let (space, offset) = locate(access.space, address);
        let align = bytes.max(access.align);
        if !address.is_multiple_of(u64::from(align)) {
            return Err(FaultKind::Misaligned { address, bytes: align, space });
        }
        let error = || FaultKind::OutOfBounds { address, bytes, space };
        let local = || {
            // SAFETY: local memory holds `local_bytes` for each lane.
            unsafe { self.local.add(lane * self.local_bytes as usize) }
        };
        let (base, end, host) = match space {
            StateSpace::Shared => {
                let span = self.shared_memory(access, offset)?;
                (span.base, span.end, span.host)
            }
            StateSpace::Local => (0, u64::from(self.local_bytes), local()),
            // Decoding has checked that parameters are only read.
            StateSpace::Param => {
                (0, self.parameters.len() as u64, self.parameters.as_ptr().cast_mut())
            }
            StateSpace::Global | StateSpace::Const => {
                let span = self.global_span(address).ok_or_else(error)?;
                (span.base, span.end, span.host)
            }
        };
        if offset < base || offset >= end || end - offset < u64::from(bytes) {
            return Err(error());
        }
        // SAFETY: the offset is inside the memory.
        Ok(unsafe { host.add((offset - base) as usize) })
    }
}

/// The space of an address, and the address in that space.
pub(super) fn locate(space: Option<StateSpace>, address: u64) -> (StateSpace, u64) {
    match space {
        Some(space) => (space, address),
        None if address.wrapping_sub(SHARED_WINDOW) < WINDOW => {
            (StateSpace::Shared, address - SHARED_WINDOW)
        }
        None if address.wrapping_sub(LOCAL_WINDOW) < WINDOW => {
            (StateSpace::Local, address - LOCAL_WINDOW)
        }
        None if address.wrapping_sub(PARAM_WINDOW) < WINDOW => {
            (StateSpace::Param, address - PARAM_WINDOW)
        }
        None => (StateSpace::Global, address),
    }
}

/// Loads values into the registers `d`, lane by lane.
///
/// # Safety
///
/// Registers and access must come from decoding the same load.
pub(super) unsafe fn load_any(
    memories: &mut Memories<'_>,
    lanes: ActiveLanes,
    d: &[Offset],
    address: Offset,
    access: &Access,
) -> Result<(), LaneFault> {
    // SAFETY: registers by the contract; `resolve` proved the bytes.
    unsafe {
        let all = addresses::<u64>(lanes, address, access);
        for lane in lanes.iter() {
            let from = memories.resolve(access, lane, all[lane]);
            let from = from.map_err(|kind| (kind, lane as u32))?;
            let bytes = access.bytes * access.count;
            let seen = memories.watch(access, lane, all[lane], bytes, AccessKind::Read);
            seen.map_err(|kind| (kind, lane as u32))?;
            for (part, register) in d.iter().enumerate() {
                let bytes = access.bytes as usize;
                let value = read_element(from.add(part * bytes), bytes, access.signed);
                lanes.file.set_lane(*register, access.value, lane, value);
            }
        }
    }
    Ok(())
}

/// Stores the registers `values`, lane by lane.
///
/// # Safety
///
/// Registers and access must come from decoding the same store.
pub(super) unsafe fn store_any(
    memories: &mut Memories<'_>,
    lanes: ActiveLanes,
    values: &[Offset],
    address: Offset,
    access: &Access,
) -> Result<(), LaneFault> {
    let bytes = access.bytes as usize;
    // SAFETY: registers by the contract; `resolve` proved the bytes.
    unsafe {
        let all = addresses::<u64>(lanes, address, access);
        for lane in lanes.iter() {
            let to = memories.resolve(access, lane, all[lane]);
            let to = to.map_err(|kind| (kind, lane as u32))?;
            if locate(access.space, all[lane]).0 == StateSpace::Global {
                memories.has_changed_global.set(true);
            }
            let all_bytes = u64::from(access.bytes * access.count);
            memories.mark_unfenced(access.space, all[lane], all_bytes);
            let kind = AccessKind::Write { same: false };
            let checked = memories.check_async(access.space, all[lane], all_bytes, kind);
            checked.map_err(|kind| (kind, lane as u32))?;
            for (part, register) in values.iter().enumerate() {
                let value = lanes.file.lane(*register, access.value, lane).to_le_bytes();
                if memories.races.is_some() {
                    let old = std::slice::from_raw_parts(to.add(part * bytes), bytes);
                    let kind = AccessKind::Write { same: old == &value[..bytes] };
                    let at = all[lane].wrapping_add((part * bytes) as u64);
                    let seen = memories.watch(access, lane, at, access.bytes, kind);
                    seen.map_err(|kind| (kind, lane as u32))?;
                }
                std::ptr::copy_nonoverlapping(value.as_ptr(), to.add(part * bytes), bytes);
            }
        }
    }
    Ok(())
}

/// Reads an element of `bytes` bytes and extends it to 64 bits.
///
/// # Safety
///
/// `from` must be valid for reading `bytes` bytes, at most 8.
pub(super) unsafe fn read_element(from: *const u8, bytes: usize, signed: bool) -> u64 {
    let mut raw = [0; 8];
    // SAFETY: by the contract.
    unsafe { std::ptr::copy_nonoverlapping(from, raw.as_mut_ptr(), bytes) };
    let value = u64::from_le_bytes(raw);
    let unused = 64 - 8 * bytes as u32;
    if signed { ((value << unused) as i64 >> unused) as u64 } else { value }
}
