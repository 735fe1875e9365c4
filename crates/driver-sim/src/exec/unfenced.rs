//! Shared memory that warps have written since their last `fence.proxy.async`.

use std::collections::HashMap;
use std::ops::Range;

/// Granularity of unfenced writes in bytes.
const PIECE: u64 = 16;

/// Pieces of shared memory with writes that no `fence.proxy.async` followed, each with a mask of
/// the warps that wrote.
#[derive(Clone, Debug, Default)]
pub(super) struct Unfenced(HashMap<u64, u32>);

impl Unfenced {
    /// Resets the state for a new block.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// A warp has written to `bytes` bytes at `address`.
    pub(super) fn write(&mut self, warp: usize, (address, bytes): (u64, u64)) {
        for piece in address / PIECE..(address + bytes).div_ceil(PIECE) {
            *self.0.entry(piece).or_default() |= 1 << warp;
        }
    }

    /// A warp has executed `fence.proxy.async`.
    pub(super) fn fence(&mut self, warp: usize) {
        self.0.retain(|_, warps| {
            *warps &= !(1 << warp);
            *warps != 0
        });
    }

    /// The async proxy has written to `bytes` bytes at `address`.
    pub(super) fn forget(&mut self, (address, bytes): (u64, u64)) {
        let pieces = address / PIECE..(address + bytes).div_ceil(PIECE);
        self.0.retain(|piece, _| !pieces.contains(piece));
    }

    /// Returns the first address in `bytes` that was written without a fence.
    pub(super) fn first_in(&self, bytes: &Range<u64>) -> Option<u64> {
        let pieces = bytes.start / PIECE..bytes.end.div_ceil(PIECE);
        let piece = self.0.keys().copied().filter(|piece| pieces.contains(piece)).min()?;
        Some((piece * PIECE).max(bytes.start))
    }

    /// Returns whether the piece at `address` was written without a fence.
    pub(super) fn holds(&self, address: u64) -> bool {
        self.0.contains_key(&(address / PIECE))
    }
}
