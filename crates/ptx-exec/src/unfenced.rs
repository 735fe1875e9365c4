//! Shared memory that warps have written since their last `fence.proxy.async`.

use std::ops::Range;

/// Granularity of unfenced writes in bytes.
const PIECE: u64 = 16;

/// Addresses of shared memory in a block; higher bits are the rank in a cluster.
const IN_BLOCK: u64 = (1 << 24) - 1;

/// Pieces of shared memory with unfenced writes.
#[derive(Clone, Debug, Default)]
pub(super) struct Unfenced {
    /// For each piece, a mask of the warps that wrote to it.
    warps: Vec<u32>,
    /// For each warp, the pieces that it wrote to; entries may be stale.
    pieces: Vec<Vec<u32>>,
}

impl Unfenced {
    /// Resets the state for a new block.
    pub(super) fn clear(&mut self) {
        (0..self.pieces.len()).for_each(|warp| self.fence(warp));
    }

    /// Records a write of `bytes` bytes of a warp.
    pub(super) fn write(&mut self, warp: usize, address: u64, bytes: u64) {
        let pieces = pieces(address, bytes);
        if self.warps.len() < pieces.end {
            self.warps.resize(pieces.end.next_power_of_two(), 0);
        }
        if self.pieces.len() <= warp {
            self.pieces.resize(warp + 1, Vec::new());
        }
        for piece in pieces {
            if self.warps[piece] >> warp & 1 == 0 {
                self.warps[piece] |= 1 << warp;
                self.pieces[warp].push(piece as u32);
            }
        }
    }

    /// Records `fence.proxy.async` of a warp.
    pub(super) fn fence(&mut self, warp: usize) {
        let Some(pieces) = self.pieces.get_mut(warp) else { return };
        for piece in pieces.drain(..) {
            self.warps[piece as usize] &= !(1 << warp);
        }
    }

    /// Clears the marks of `bytes` bytes that the async proxy has written.
    pub(super) fn forget(&mut self, address: u64, bytes: u64) {
        let pieces = pieces(address, bytes);
        let end = pieces.end.min(self.warps.len());
        self.warps.get_mut(pieces.start..end).unwrap_or_default().fill(0);
    }

    /// Returns the first address in `bytes` that was written without a fence.
    pub(super) fn first_in(&self, bytes: &Range<u64>) -> Option<u64> {
        let pieces = pieces(bytes.start, bytes.end.saturating_sub(bytes.start));
        let end = pieces.end.min(self.warps.len());
        let position = self.warps.get(pieces.start..end)?.iter().position(|warps| *warps != 0)?;
        Some((bytes.start / PIECE * PIECE + position as u64 * PIECE).max(bytes.start))
    }

    /// Returns whether the piece at `address` was written without a fence.
    #[inline(always)]
    pub(super) fn holds(&self, address: u64) -> bool {
        self.warps.get(((address & IN_BLOCK) / PIECE) as usize).is_some_and(|warps| *warps != 0)
    }
}

/// The indices of the pieces of a range.
fn pieces(address: u64, bytes: u64) -> Range<usize> {
    let start = address & IN_BLOCK;
    (start / PIECE) as usize..(start + bytes).div_ceil(PIECE) as usize
}
