//! Configurations of the bf16 kernels with stages loaded through registers.

use crate::gemm::layout::Major;
use crate::gemm::smem_tile::{SmemLayout, SmemTile};
use crate::primitives::dtype::DType;

/// The tile of a block, and how its warps share it.
pub(in crate::gemm) struct MmaConfig {
    /// Suffix of the entry name.
    pub(in crate::gemm) name: &'static str,
    /// Rows of c.
    pub(in crate::gemm) rows: u32,
    /// Columns of c.
    pub(in crate::gemm) columns: u32,
    /// Warps of a slice, along M and N.
    pub(in crate::gemm) warps: [u32; 2],
    /// Elements of a stage along K per slice, a multiple of 16.
    pub(in crate::gemm) tile_k: u32,
    /// Slices of K that groups of warps multiply in parallel (sliced-K).
    pub(in crate::gemm) slices: u32,
    /// Blocks per SM, which limits the registers of a thread.
    pub(in crate::gemm) min_blocks_per_sm: u32,
}

/// All configurations.
pub(in crate::gemm) const CONFIGS: [MmaConfig; 7] = [
    MmaConfig::new("128x128", [128, 128], [2, 4]).with_stage([32, 1, 1]),
    MmaConfig::new("64x64", [64, 64], [2, 2]).with_stage([32, 1, 3]),
    MmaConfig::new("32x32", [32, 32], [1, 2]).with_stage([32, 1, 6]),
    MmaConfig::new("32x64_sliced2", [32, 64], [1, 2]).with_stage([32, 2, 3]),
    MmaConfig::new("32x32_sliced4", [32, 32], [1, 1]).with_stage([32, 4, 3]),
    MmaConfig::new("32x16_sliced8", [32, 16], [1, 1]).with_stage([16, 8, 2]),
    MmaConfig::new("16x16_sliced8", [16, 16], [1, 1]).with_stage([16, 8, 2]),
];

/// Stages in shared memory: one is loaded while the other is multiplied.
pub(in crate::gemm) const STAGES: u32 = 2;

impl MmaConfig {
    const fn new(name: &'static str, [rows, columns]: [u32; 2], warps: [u32; 2]) -> Self {
        Self { name, rows, columns, warps, tile_k: 16, slices: 1, min_blocks_per_sm: 1 }
    }

    const fn with_stage(self, [tile_k, slices, min_blocks_per_sm]: [u32; 3]) -> Self {
        Self { tile_k, slices, min_blocks_per_sm, ..self }
    }

    /// Threads of a block.
    pub(in crate::gemm) fn threads(&self) -> u32 {
        32 * self.warps[0] * self.warps[1] * self.slices
    }

    /// The tile of an operand in a stage.
    pub(in crate::gemm) fn smem_tile(&self, extent: u32, major: Major) -> SmemTile {
        SmemTile {
            extent,
            tile_k: self.tile_k * self.slices,
            threads: self.threads(),
            major,
            dtype: DType::Bf16,
            layout: SmemLayout::Padded,
        }
    }

    /// Rows and columns of a warp.
    pub(in crate::gemm) fn warp(&self) -> [u32; 2] {
        [self.rows / self.warps[0], self.columns / self.warps[1]]
    }

    /// Words of shared memory to add up slices; 0 if there is only one.
    pub(in crate::gemm) fn slice_sums_len(&self) -> u32 {
        if self.slices == 1 { 0 } else { self.slices * self.rows * self.columns }
    }
}
