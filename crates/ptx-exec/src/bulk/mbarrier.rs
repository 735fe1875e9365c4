//! The state of mbarriers.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::undefined;
use crate::access::Memories;
use crate::fault::FaultKind;
use crate::undefined::ProxyMisuse;

/// The size of an mbarrier in bytes, and its alignment.
const BYTES: u64 = 8;
/// Maximum arrivals and maximum transaction count of a phase.
const MAX_COUNT: u32 = (1 << 20) - 1;
/// The mark in the bytes of an mbarrier, next to its phase.
const MARK: u64 = 0x6d62_6172_0000_0000;

/// An mbarrier.
#[derive(Clone, Copy, Debug)]
struct Mbarrier {
    /// Arrivals that each phase needs.
    count: u32,
    /// Pending arrivals of the phase.
    pending: u32,
    /// Pending bytes of the phase (the transaction count).
    bytes: i64,
    /// The number of completed phases.
    phase: u64,
    /// The warp that initialized it, until a fence makes it visible to the async proxy.
    unfenced_by: Option<usize>,
}

/// The mbarriers of a block by address.
#[derive(Clone, Debug, Default)]
pub(super) struct Mbarriers {
    barriers: BTreeMap<u64, Mbarrier>,
    /// The number of events that may end a wait.
    pub(super) version: u64,
}

/// Arrivals, and bytes to add to the transaction count.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) count: u32,
    pub(super) bytes: u32,
    /// Whether the arrival may complete the phase.
    pub(super) completes: bool,
}

/// The host bytes of an mbarrier.
fn host(memories: &Memories<'_>, address: u64) -> Result<*mut u8, FaultKind> {
    if !address.is_multiple_of(BYTES) {
        return undefined(ProxyMisuse::BarrierAlignment { address });
    }
    memories.shared_bytes(address, BYTES)
}

/// Writes the mark and the phase into the bytes of an mbarrier.
fn mark(memories: &Memories<'_>, address: u64, phase: u64) -> Result<(), FaultKind> {
    let bytes = (MARK | phase & 0xffff_ffff).to_le_bytes();
    let to = host(memories, address)?;
    // SAFETY: `host` proved 8 bytes.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    Ok(())
}

impl Mbarriers {
    /// `mbarrier.init` by a warp.
    pub(super) fn init(
        &mut self,
        memories: &Memories<'_>,
        address: u64,
        count: u32,
    ) -> Result<(), FaultKind> {
        if count == 0 || count > MAX_COUNT {
            return undefined(ProxyMisuse::BarrierCount { address, count });
        }
        let near = address.saturating_sub(BYTES - 1)..address + BYTES;
        if let Some((&other, _)) = self.barriers.range(near).next() {
            return undefined(ProxyMisuse::BarrierExists { address, other });
        }
        mark(memories, address, 0)?;
        let unfenced_by = Some(memories.warp);
        let barrier = Mbarrier { count, pending: count, bytes: 0, phase: 0, unfenced_by };
        self.barriers.insert(address, barrier);
        Ok(())
    }

    /// `mbarrier.inval`.
    pub(super) fn invalidate(
        &mut self,
        memories: &Memories<'_>,
        address: u64,
    ) -> Result<(), FaultKind> {
        self.get(memories, address)?;
        self.barriers.remove(&address);
        Ok(())
    }

    /// Makes the mbarriers that a warp has initialized visible to the async proxy.
    pub(super) fn fence(&mut self, warp: usize) {
        for barrier in self.barriers.values_mut() {
            if barrier.unfenced_by == Some(warp) {
                barrier.unfenced_by = None;
            }
        }
    }

    fn get(&mut self, memories: &Memories<'_>, address: u64) -> Result<&mut Mbarrier, FaultKind> {
        let from = host(memories, address)?;
        let Some(barrier) = self.barriers.get_mut(&address) else {
            return undefined(ProxyMisuse::NoBarrier { address });
        };
        // SAFETY: `host` proved 8 bytes.
        let bytes = u64::from_le_bytes(unsafe { from.cast::<[u8; 8]>().read_unaligned() });
        if bytes != MARK | barrier.phase & 0xffff_ffff {
            return undefined(ProxyMisuse::BarrierOverwritten { address });
        }
        Ok(barrier)
    }

    /// Checks the mbarrier of a bulk copy.
    pub(super) fn check_for_copy(
        &mut self,
        memories: &Memories<'_>,
        address: u64,
    ) -> Result<(), FaultKind> {
        if self.get(memories, address)?.unfenced_by.is_some() {
            return undefined(ProxyMisuse::UnfencedBarrier { address });
        }
        Ok(())
    }

    /// Counts an arrival and adds to the transaction count. Returns the phase of the arrival.
    pub(super) fn arrive(
        &mut self,
        memories: &Memories<'_>,
        address: u64,
        arrival: Arrival,
    ) -> Result<u64, FaultKind> {
        let barrier = self.get(memories, address)?;
        let Arrival { count, bytes, completes } = arrival;
        if count > barrier.pending {
            let Mbarrier { phase, pending, count: expected, .. } = *barrier;
            let misuse = ProxyMisuse::TooManyArrivals { address, phase, pending, expected, count };
            return undefined(misuse);
        }
        if !completes && count == barrier.pending {
            return undefined(ProxyMisuse::CompletesPhase { address, phase: barrier.phase });
        }
        let phase = barrier.phase;
        // The bytes are expected before the arrival counts.
        barrier.bytes += i64::from(bytes);
        check_bytes(address, barrier)?;
        barrier.pending -= count;
        self.settle(memories, address)?;
        Ok(phase)
    }

    /// Adds `bytes`, which may be negative, to the transaction count of the phase.
    pub(super) fn count_bytes(
        &mut self,
        memories: &Memories<'_>,
        address: u64,
        bytes: i64,
    ) -> Result<(), FaultKind> {
        let barrier = self.get(memories, address)?;
        barrier.bytes += bytes;
        check_bytes(address, barrier)?;
        self.settle(memories, address)
    }

    /// Begins the next phase if this one is complete.
    fn settle(&mut self, memories: &Memories<'_>, address: u64) -> Result<(), FaultKind> {
        let Some(barrier) = self.barriers.get_mut(&address) else { return Ok(()) };
        self.version += 1;
        if barrier.pending == 0 && barrier.bytes == 0 {
            barrier.phase += 1;
            barrier.pending = barrier.count;
            mark(memories, address, barrier.phase)?;
        }
        Ok(())
    }

    /// The number of completed phases.
    pub(super) fn phase(
        &mut self,
        memories: &Memories<'_>,
        address: u64,
    ) -> Result<u64, FaultKind> {
        Ok(self.get(memories, address)?.phase)
    }

    /// Describes the state of an mbarrier, for a message.
    pub(super) fn describe(&self, address: u64) -> String {
        let mut text = format!("the mbarrier at {address:#x}");
        if let Some(barrier) = self.barriers.get(&address) {
            let Mbarrier { count, pending, bytes, phase, .. } = barrier;
            let _ = write!(
                text,
                ", whose phase {phase} needs {pending} of {count} arrivals and {bytes} bytes"
            );
        }
        text
    }
}

fn check_bytes(address: u64, barrier: &Mbarrier) -> Result<(), FaultKind> {
    if barrier.bytes.unsigned_abs() > u64::from(MAX_COUNT) {
        let Mbarrier { phase, bytes, .. } = *barrier;
        return undefined(ProxyMisuse::TransactionBytes {
            address,
            phase,
            bytes,
            limit: MAX_COUNT,
        });
    }
    Ok(())
}
