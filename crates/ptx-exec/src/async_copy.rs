//! `cp.async`: copies that complete at the wait for them.
//!
//! Issuing a copy checks both addresses and poisons the destination. The wait that covers the copy
//! reads the source and writes the destination, so a missing or early wait changes results. A copy
//! without a wait completes when its thread exits, the latest legal moment, and then overwrites the
//! contents of the buffer.

use super::access::{LaneFault, Memories};
use super::fault::FaultKind;
use super::program::{Access, LANES, Width};
use super::races::AccessKind;
use super::registers::{ActiveLanes, Offset, lanes_of};
use super::undefined::Undefined;
use crate::memory::POISON;

/// A `cp.async` instruction.
#[derive(Clone, Copy, Debug)]
pub(super) struct AsyncCopy {
    /// The destination, in shared memory.
    pub(super) to: Access,
    /// The source, in global memory.
    pub(super) from: Access,
    /// Whether the third operand is the ignore-src predicate and not the number of source bytes.
    pub(super) ignores: bool,
}

/// A copy of a lane in flight. It is small, because every lane of every copy writes and reads one.
#[derive(Clone, Copy, Debug)]
struct Pending {
    lane: u32,
    /// The index of its group among the groups of the lane.
    group: u32,
    /// The index of the instruction in the copies of the program.
    copy: u32,
    /// Bytes read from the source; the rest is zero.
    copied: u32,
    to: *mut u8,
    from: *const u8,
    /// The device addresses of target and source.
    addresses: (u64, u64),
}

/// The registers of a `cp.async`: target and source address, and bytes of the source.
#[derive(Clone, Copy)]
pub(super) struct Operands {
    pub(super) target: Offset,
    pub(super) source: Offset,
    pub(super) size: Offset,
}

/// The copies of a warp in flight.
#[derive(Clone, Debug, Default)]
pub(super) struct AsyncCopies {
    pending: Vec<Pending>,
    /// The number of groups that each lane has committed.
    committed: [u32; LANES],
}

impl AsyncCopies {
    /// Resets the state for a new block.
    pub(super) fn clear(&mut self) {
        self.pending.clear();
        self.committed = [0; LANES];
    }

    /// `cp.async`.
    ///
    /// # Safety
    ///
    /// The instruction must come from decoding.
    #[inline(never)]
    pub(super) unsafe fn issue(
        &mut self,
        memories: &mut Memories<'_>,
        lanes: ActiveLanes,
        operands: Operands,
        index: u32,
        copy: &AsyncCopy,
    ) -> Result<(), LaneFault> {
        let Operands { target, source, size } = operands;
        let bytes = copy.to.bytes;
        for lane in lanes.iter() {
            let fault = |kind| (kind, lane as u32);
            // SAFETY: the registers come from decoding; `resolve` proves the target.
            unsafe {
                let value = |register, width| lanes.file.lane(register, width, lane);
                let copied = match copy.ignores {
                    true if value(size, Width::Predicate) != 0 => 0,
                    true => bytes,
                    false => value(size, Width::Word) as u32,
                };
                if copied > bytes {
                    return Err(fault(FaultKind::Undefined(Undefined::CopySize)));
                }
                let to_address = shifted(value(target, copy.to.address), &copy.to);
                let to = memories.resolve(&copy.to, lane, to_address).map_err(fault)?;
                let origin = shifted(value(source, copy.from.address), &copy.from);
                let from = if copied == 0 {
                    std::ptr::null()
                } else {
                    source_bytes(memories, copy, lane, origin, copied).map_err(fault)?
                };
                memories
                    .watch(&copy.to, lane, to_address, bytes, AccessKind::Write { same: false })
                    .map_err(fault)?;
                // A copy has 4, 8 or 16 bytes; a loop avoids a call of `memcpy`.
                for word in 0..bytes as usize / size_of_val(&POISON) {
                    to.cast::<u32>().add(word).write_unaligned(POISON);
                }
                let group = self.committed[lane];
                let (lane, copy) = (lane as u32, index);
                let addresses = (to_address, origin);
                self.pending.push(Pending { lane, group, copy, copied, to, from, addresses });
            }
        }
        Ok(())
    }

    /// `cp.async.commit_group`.
    pub(super) fn commit(&mut self, mask: u32) {
        lanes_of(mask).for_each(|lane| self.committed[lane] += 1);
    }

    /// `cp.async.wait_group`: completes all groups except the last `open`. `None` is
    /// `cp.async.wait_all`, which completes all copies, committed or not. `copies` are the copies
    /// of the program.
    #[inline(never)]
    pub(super) fn wait(
        &mut self,
        memories: &mut Memories<'_>,
        copies: &[AsyncCopy],
        mask: u32,
        open: Option<u32>,
    ) -> Result<(), LaneFault> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let (committed, mut seen) = (self.committed, Ok(()));
        self.pending.retain(|pending| {
            let committed = committed[pending.lane as usize];
            let closed = open.is_none_or(|n| pending.group < committed.saturating_sub(n));
            let completes = closed && mask >> pending.lane & 1 != 0;
            if completes && seen.is_ok() {
                let copy = &copies[pending.copy as usize];
                seen = pending.complete(memories, copy).map_err(|kind| (kind, pending.lane));
            }
            !completes
        });
        seen
    }
}

impl Pending {
    fn complete(&self, memories: &mut Memories<'_>, copy: &AsyncCopy) -> Result<(), FaultKind> {
        let ((target, origin), lane, bytes) = (self.addresses, self.lane as usize, copy.to.bytes);
        memories.watch(&copy.from, lane, origin, self.copied, AccessKind::Read)?;
        memories.watch(&copy.to, lane, target, bytes, AccessKind::Write { same: false })?;
        memories.mark_unfenced(copy.to.space, target, u64::from(bytes));
        let (copied, zeros) = (self.copied as usize, (bytes - self.copied) as usize);
        // SAFETY: both ranges were proved when the copy was issued. Shared memory lives as long as
        // the block, and global memory as long as the launch.
        unsafe {
            match copied {
                16 => self.to.cast::<[u8; 16]>().write(self.from.cast::<[u8; 16]>().read()),
                0 => (),
                _ => std::ptr::copy(self.from, self.to, copied),
            }
            if zeros > 0 {
                self.to.add(copied).write_bytes(0, zeros);
            }
        }
        Ok(())
    }
}

fn shifted(address: u64, access: &Access) -> u64 {
    let address = address.wrapping_add(access.offset as u64);
    if access.address == Width::Word { address & 0xffff_ffff } else { address }
}

/// The host bytes of the source; only the copied bytes must be in bounds.
fn source_bytes(
    memories: &Memories<'_>,
    copy: &AsyncCopy,
    lane: usize,
    address: u64,
    copied: u32,
) -> Result<*const u8, FaultKind> {
    if !address.is_multiple_of(u64::from(copy.from.bytes)) {
        let (bytes, space) = (copy.from.bytes, retrograph_ptx::ast::StateSpace::Global);
        return Err(FaultKind::Misaligned { address, bytes, space });
    }
    // Byte by byte, because the number of bytes need not be a power of two.
    let one = Access { bytes: 1, count: 1, ..copy.from };
    let from = memories.resolve(&one, lane, address)?;
    memories.resolve(&one, lane, address + u64::from(copied) - 1)?;
    Ok(from)
}
