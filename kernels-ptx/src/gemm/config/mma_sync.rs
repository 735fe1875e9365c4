//! Configurations of the bf16 kernels with stages loaded through registers.

use retrograph_kernel_abi::DType;
use retrograph_kernel_abi::gemm::{Mainloop, TileConfig};

use crate::gemm::operand_tile::OperandTile;
use crate::primitives::smem_tile::Major;

/// The tile of a block, and its partition among warps.
pub(in crate::gemm) struct MmaConfig {
    pub(in crate::gemm) tile: TileConfig,
    /// Warps of a slice, along M and N.
    pub(in crate::gemm) warps: [u32; 2],
    /// Elements of a stage along K per slice, a multiple of 16.
    pub(in crate::gemm) slice_k: u32,
    /// Slices of K that groups of warps multiply in parallel (sliced-K).
    pub(in crate::gemm) slices: u32,
}

/// Stages in shared memory: one is loaded while the other is multiplied.
pub(in crate::gemm) const STAGES: u32 = 2;

impl MmaConfig {
    /// The configuration of `tile`; `None` if it has another mainloop.
    pub(in crate::gemm) fn new(tile: &TileConfig) -> Option<Self> {
        let Mainloop::MmaSync { warps, slice_k, slices } = tile.mainloop else { return None };
        Some(Self { tile: *tile, warps, slice_k, slices })
    }

    /// The tile of an operand in a stage.
    pub(in crate::gemm) fn operand_tile(&self, extent: u32, major: Major) -> OperandTile {
        let shape = [extent, self.tile.block_k()];
        OperandTile::padded(shape, self.tile.threads(), major, DType::Bf16)
    }

    /// Rows and columns of a warp.
    pub(in crate::gemm) fn warp(&self) -> [u32; 2] {
        [0, 1].map(|side| self.tile.shape[side] / self.warps[side])
    }

    /// Words of shared memory for adding the slices; 0 if there is only one slice.
    pub(in crate::gemm) fn slice_sums_len(&self) -> u32 {
        if self.slices == 1 { 0 } else { self.slices * self.tile.shape[0] * self.tile.shape[1] }
    }
}
