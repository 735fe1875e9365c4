//! `cp.async`: copies that land at their wait.
//!
//! A copy is noted when it is issued: both places are checked, and the target becomes poison. The
//! source is read and the target is written by the wait that covers the copy, and never when there
//! is none, so that a wait that was forgotten, or that comes too early, is found by what is read.

use super::access::{Memories, Trouble, lane_of, lanes_of};
use super::fault::FaultKind;
use super::program::{Access, LANES, Width};
use super::vector::Slots;
use crate::memory::{POISON, fill_host};

/// A `cp.async` instruction: operands target address, source address, size.
#[derive(Clone, Copy, Debug)]
pub(super) struct StagedCopy {
    /// The target, in shared memory.
    pub(super) to: Access,
    /// The source, in global memory.
    pub(super) from: Access,
    /// Whether the third operand is a predicate that turns the source into zeros, and not the
    /// bytes that are copied before zeros follow.
    pub(super) ignores: bool,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    lane: usize,
    /// The group that the copy belongs to, counted for each lane.
    group: u32,
    to: *mut u8,
    from: *const u8,
    bytes: usize,
    /// Bytes that come from the source; zeros follow.
    copied: usize,
}

/// The copies of a warp that have not landed.
#[derive(Clone, Debug, Default)]
pub(super) struct Staged {
    pending: Vec<Pending>,
    /// Groups that each lane has committed.
    committed: [u32; LANES],
}

impl Staged {
    /// Forgets everything, for a new block.
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
        (slots, mask): (Slots, u32),
        copy: &StagedCopy,
    ) -> Result<(), Trouble> {
        let bytes = copy.to.bytes;
        for lane in lanes_of(mask) {
            let trouble = |kind| (kind, lane as u32);
            // SAFETY: the slots come from decoding; `resolve` proves the target.
            unsafe {
                let copied = match copy.ignores {
                    true if lane_of(slots, 2, (Width::Predicate, lane)) != 0 => 0,
                    true => bytes,
                    false => lane_of(slots, 2, (Width::Word, lane)) as u32,
                };
                if copied > bytes {
                    let what = "an asynchronous copy of more bytes than it has room for";
                    return Err(trouble(FaultKind::Undefined { what }));
                }
                let to = lane_of(slots, 0, (copy.to.address, lane));
                let to = memories.resolve(&copy.to, lane, shifted(to, &copy.to));
                let to = to.map_err(trouble)?;
                let from = if copied == 0 {
                    std::ptr::null()
                } else {
                    let from = shifted(lane_of(slots, 1, (copy.from.address, lane)), &copy.from);
                    source(memories, copy, (lane, from, copied)).map_err(trouble)?
                };
                memories.watch_write(to, bytes as usize, lane);
                fill_host(to, &POISON.to_le_bytes(), bytes as usize);
                self.pending.push(Pending {
                    lane,
                    group: self.committed[lane],
                    to,
                    from,
                    bytes: bytes as usize,
                    copied: copied as usize,
                });
            }
        }
        Ok(())
    }

    /// `cp.async.commit_group`.
    pub(super) fn commit(&mut self, mask: u32) {
        lanes_of(mask).for_each(|lane| self.committed[lane] += 1);
    }

    /// `cp.async.wait_group`: all groups land but the last `open`.
    #[inline(never)]
    pub(super) fn wait(&mut self, memories: &mut Memories<'_>, mask: u32, open: u32) {
        let committed = self.committed;
        self.land(memories, |copy| {
            mask >> copy.lane & 1 != 0 && copy.group < committed[copy.lane].saturating_sub(open)
        });
    }

    /// `cp.async.wait_all`: all copies land, committed or not.
    #[inline(never)]
    pub(super) fn wait_all(&mut self, memories: &mut Memories<'_>, mask: u32) {
        self.land(memories, |copy| mask >> copy.lane & 1 != 0);
    }

    fn land(&mut self, memories: &mut Memories<'_>, lands: impl Fn(&Pending) -> bool) {
        self.pending.retain(|copy| {
            if !lands(copy) {
                return true;
            }
            memories.watch_write(copy.to, copy.bytes, copy.lane);
            // SAFETY: both places were proved when the copy was issued. Shared memory lives as
            // long as the block, and global memory as long as the launch.
            unsafe {
                if copy.copied > 0 {
                    std::ptr::copy(copy.from, copy.to, copy.copied);
                }
                copy.to.add(copy.copied).write_bytes(0, copy.bytes - copy.copied);
            }
            false
        });
    }
}

fn shifted(address: u64, access: &Access) -> u64 {
    let address = address.wrapping_add(access.offset as u64);
    if access.address == Width::Word { address & 0xffff_ffff } else { address }
}

/// The host bytes of the source, of which only those that are copied need to exist.
fn source(
    memories: &Memories<'_>,
    copy: &StagedCopy,
    (lane, address, copied): (usize, u64, u32),
) -> Result<*const u8, FaultKind> {
    if !address.is_multiple_of(u64::from(copy.from.bytes)) {
        let (bytes, space) = (copy.from.bytes, retrograph_ptx::ast::Space::Global);
        return Err(FaultKind::Misaligned { address, bytes, space });
    }
    // Bytes one by one, because the number of them need not be a power of two.
    let one = Access { bytes: 1, count: 1, ..copy.from };
    let from = memories.resolve(&one, lane, address)?;
    memories.resolve(&one, lane, address + u64::from(copied) - 1)?;
    Ok(from)
}
