//! Tiles in shared memory with the 128-byte swizzle of `wgmma` and TMA.

use retrograph_ptx::build::{Kernel, Shared};

/// Words of a line of a swizzled tile: 128 bytes.
pub(crate) const LINE_WORDS: u32 = 32;
/// Alignment in bytes of swizzled tiles.
pub(crate) const SWIZZLE_ALIGNMENT: u32 = 1024;

/// The first swizzle-aligned address in `smem`, which must have [`SWIZZLE_ALIGNMENT`] spare bytes.
pub(crate) fn align_for_swizzle<'k>(k: &Kernel<'k>, smem: Shared<'k, u32>) -> Shared<'k, u32> {
    smem.at(((k.constant(0u32) - smem.address()) & (SWIZZLE_ALIGNMENT - 1)) >> 2)
}
