//! Tile configurations: the shape of the c tile of a block, and its mainloop.

/// A tile of c and the mainloop of its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TileConfig {
    /// Rows and columns of c.
    pub shape: [u32; 2],
    /// The mainloop that computes them.
    pub mainloop: Mainloop,
    /// Minimum blocks per SM, which limits the registers per thread. Kernels with NF4 operands, and
    /// with tf32 `wgmma`, may choose fewer.
    pub min_blocks_per_sm: u32,
}

/// The mainloop of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mainloop {
    /// f32 fused multiply-adds; operands are staged through registers to shared memory.
    Simt {
        /// Rows and columns of c per thread, multiples of 4.
        thread_tile: [u32; 2],
        /// Contraction length per stage and slice.
        slice_k: u32,
        /// Groups of threads that each compute a slice of a stage (sliced-K). The epilogue adds the
        /// slices in ascending order.
        slices: u32,
        /// Stages in shared memory. With two, one is filled while the other is read.
        stages: u32,
    },
    /// bf16 `mma.sync`, or fused multiply-adds before sm_80; operands are staged through registers,
    /// where they are rounded, to shared memory.
    MmaSync {
        /// Warps of a slice along M and N.
        warps: [u32; 2],
        /// Contraction length per stage and slice, a multiple of 16.
        slice_k: u32,
        /// Groups of warps that each compute a slice of a stage (sliced-K).
        slices: u32,
    },
    /// Tensor cores with multistage `cp.async` pipelining; rows of operands must allow copies of 16
    /// bytes.
    Multistage {
        /// Warps along M and N that multiply.
        warps: [u32; 2],
        /// Contraction length per stage and number of stages, for targets with 160 KiB, 99 KiB and
        /// 64 KiB of shared memory per block. `[0, 0]` if only `wgmma` can compute the tile,
        /// because the accumulators of `mma.sync` do not fit in registers.
        stages: [[u32; 2]; 3],
        /// Number of stages with bf16 `wgmma`; 0 for f32, and for tiles that do not exist on
        /// targets with `wgmma`.
        wgmma_stages: u32,
        /// Threads of the producer warps with `wgmma`.
        wgmma_producers: u32,
    },
    /// `wgmma` on bf16 or split f16. One producer warp fills the stages by TMA; each consumer
    /// warpgroup multiplies 64 rows. Blocks are persistent: each computes every n-th tile of a
    /// plane. Operands must have tensor maps.
    WarpSpecialized {
        /// Stages in shared memory, each [`WGMMA_BLOCK_K`] long.
        stages: u32,
        /// The blocks of a cluster.
        cluster: Cluster,
    },
}

/// The blocks of a cluster of [`Mainloop::WarpSpecialized`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// Tiles stacked along M. Each block multicasts its share of b to all of them.
    pub m: u32,
    /// Blocks that each multiply a range of K of the same tile (split-K). The first one adds the
    /// ranges in ascending order.
    pub k: u32,
}

impl Cluster {
    /// One block.
    pub const ONE: Self = Self { m: 1, k: 1 };

    /// Number of blocks.
    pub const fn blocks(self) -> u32 {
        self.m * self.k
    }
}

/// Rows of a consumer warpgroup of [`Mainloop::WarpSpecialized`].
pub const CONSUMER_ROWS: u32 = 64;

impl TileConfig {
    const fn simt(
        shape: [u32; 2],
        thread_tile: [u32; 2],
        slice_k: u32,
        slices: u32,
        stages: u32,
        min_blocks_per_sm: u32,
    ) -> Self {
        let mainloop = Mainloop::Simt { thread_tile, slice_k, slices, stages };
        Self { shape, mainloop, min_blocks_per_sm }
    }

    const fn mma_sync(
        shape: [u32; 2],
        warps: [u32; 2],
        slice_k: u32,
        slices: u32,
        min_blocks_per_sm: u32,
    ) -> Self {
        let mainloop = Mainloop::MmaSync { warps, slice_k, slices };
        Self { shape, mainloop, min_blocks_per_sm }
    }

    const fn bf16(
        shape: [u32; 2],
        warps: [u32; 2],
        stages: [[u32; 2]; 3],
        wgmma_stages: u32,
        min_blocks_per_sm: u32,
    ) -> Self {
        let mainloop = Mainloop::Multistage { warps, stages, wgmma_stages, wgmma_producers: 0 };
        Self { shape, mainloop, min_blocks_per_sm }
    }

    const fn tf32x3(shape: [u32; 2], warps: [u32; 2], min_blocks_per_sm: u32) -> Self {
        let stages = [[WGMMA_TF32X3_BLOCK_K, 4], [32, 2], [16, 2]];
        let mainloop =
            Mainloop::Multistage { warps, stages, wgmma_stages: 0, wgmma_producers: 128 };
        Self { shape, mainloop, min_blocks_per_sm }
    }

    const fn warp_specialized(shape: [u32; 2], stages: u32) -> Self {
        let mainloop = Mainloop::WarpSpecialized { stages, cluster: Cluster::ONE };
        Self { shape, mainloop, min_blocks_per_sm: 1 }
    }

    /// A warp-specialized tile with two blocks per SM.
    const fn two_per_sm(shape: [u32; 2], stages: u32) -> Self {
        Self { min_blocks_per_sm: 2, ..Self::warp_specialized(shape, stages) }
    }

    /// A warp-specialized tile in clusters of two blocks along M.
    const fn clustered(shape: [u32; 2], stages: u32) -> Self {
        let mainloop = Mainloop::WarpSpecialized { stages, cluster: Cluster { m: 2, k: 1 } };
        Self { shape, mainloop, min_blocks_per_sm: 1 }
    }

    /// A warp-specialized tile whose contraction is split among the `k` blocks of a cluster.
    const fn cluster_split_k(shape: [u32; 2], stages: u32, k: u32) -> Self {
        let mainloop = Mainloop::WarpSpecialized { stages, cluster: Cluster { m: 1, k } };
        Self { shape, mainloop, min_blocks_per_sm: 1 }
    }

    /// Threads per block, without the producer warps of targets with `wgmma`.
    pub const fn threads(&self) -> u32 {
        match self.mainloop {
            Mainloop::Simt { thread_tile, slices, .. } => {
                self.shape[0] / thread_tile[0] * (self.shape[1] / thread_tile[1]) * slices
            }
            Mainloop::MmaSync { warps, slices, .. } => 32 * warps[0] * warps[1] * slices,
            Mainloop::Multistage { warps, .. } => 32 * warps[0] * warps[1],
            Mainloop::WarpSpecialized { .. } => self.shape[0] / CONSUMER_ROWS * 128,
        }
    }

    /// Threads of the producer warps of a block, on targets with `wgmma`.
    pub const fn wgmma_producers(&self) -> u32 {
        match self.mainloop {
            Mainloop::Multistage { wgmma_producers, .. } => wgmma_producers,
            Mainloop::WarpSpecialized { .. } => 32,
            _ => 0,
        }
    }

    /// The blocks of a cluster.
    pub const fn cluster(&self) -> Cluster {
        match self.mainloop {
            Mainloop::WarpSpecialized { cluster, .. } => cluster,
            _ => Cluster::ONE,
        }
    }

    /// Number of tiles of a result of `m` × `n`, a multiple of the tiles of a cluster.
    pub const fn tiles(&self, m: u32, n: u32) -> u64 {
        let stacked = self.cluster().m;
        let down = m.div_ceil(self.shape[0] * stacked) * stacked;
        down as u64 * n.div_ceil(self.shape[1]) as u64
    }

    /// Contraction length per stage over all slices; the length on sm_90 if targets differ.
    pub const fn block_k(&self) -> u32 {
        match self.mainloop {
            Mainloop::Simt { slice_k, slices, .. } | Mainloop::MmaSync { slice_k, slices, .. } => {
                slice_k * slices
            }
            Mainloop::WarpSpecialized { .. } => WGMMA_BLOCK_K,
            Mainloop::Multistage { stages: [[0, _], ..], .. } => WGMMA_BLOCK_K,
            Mainloop::Multistage { stages: [[block_k, _], ..], .. } => block_k,
        }
    }

    /// Whether rows of operands must allow copies of 16 bytes.
    pub const fn needs_vectorized_rows(&self) -> bool {
        matches!(self.mainloop, Mainloop::Multistage { .. } | Mainloop::WarpSpecialized { .. })
    }

    /// Whether operands must have tensor maps.
    pub const fn needs_tensor_maps(&self) -> bool {
        matches!(self.mainloop, Mainloop::WarpSpecialized { .. })
    }

    /// Whether the tile exists only on targets with `wgmma`.
    pub const fn needs_wgmma(&self) -> bool {
        let only_wgmma = matches!(self.mainloop, Mainloop::Multistage { stages: [[0, _], ..], .. });
        only_wgmma || self.needs_tensor_maps()
    }

    /// Whether the tile exists only on targets without `wgmma`.
    pub const fn excludes_wgmma(&self) -> bool {
        matches!(self.mainloop, Mainloop::Multistage { wgmma_stages: 0, wgmma_producers: 0, .. })
    }
}

/// Contraction length per stage with `wgmma` on bf16 and split f16.
pub const WGMMA_BLOCK_K: u32 = 64;
/// Contraction length per stage with `wgmma` in `tf32x3`.
pub const WGMMA_TF32X3_BLOCK_K: u32 = 32;

/// Tiles of f32 products: SIMT tiles, and multistage tiles that compute three tf32 products per f32
/// product (`tf32x3`), or fused multiply-adds on targets without tf32 tensor cores.
///
/// Shared memory delivers 32 elements per clock to the 128 FMA units of an SM, so full throughput
/// needs at least four products per element that a thread reads. Thread tiles of 8 × 8 reach full
/// throughput, 8 × 4 two thirds of it, and 4 × 4 half.
pub const SIMT: &[TileConfig] = &[
    TileConfig::simt([128, 128], [8, 8], 8, 1, 2, 2),
    TileConfig::simt([64, 64], [8, 4], 16, 1, 2, 4),
    TileConfig::simt([32, 32], [4, 4], 16, 1, 2, 8),
    TileConfig::simt([128, 128], [16, 8], 8, 2, 2, 1),
    TileConfig::simt([64, 64], [16, 8], 8, 4, 2, 2),
    TileConfig::simt([64, 32], [8, 8], 8, 4, 2, 3),
    TileConfig::simt([32, 32], [8, 4], 16, 8, 1, 2),
    TileConfig::simt([32, 16], [8, 4], 8, 16, 1, 2),
    TileConfig::simt([16, 16], [4, 4], 16, 16, 1, 2),
    TileConfig::tf32x3([128, 128], [2, 4], 1),
    TileConfig::tf32x3([64, 64], [2, 2], 3),
];

/// Tiles of f32 products whose b is NF4: the SIMT tiles of [`SIMT`].
pub const SIMT_NF4: &[TileConfig] = SIMT.split_at(9).0;

/// Tiles of products that round their operands to bf16.
pub const MMA_SYNC: &[TileConfig] = &[
    TileConfig::mma_sync([128, 128], [2, 4], 32, 1, 1),
    TileConfig::mma_sync([64, 64], [2, 2], 32, 1, 3),
    TileConfig::mma_sync([32, 32], [1, 2], 32, 1, 6),
    TileConfig::mma_sync([32, 64], [1, 2], 32, 2, 3),
    TileConfig::mma_sync([32, 32], [1, 1], 32, 4, 3),
    TileConfig::mma_sync([32, 16], [1, 1], 16, 8, 2),
    TileConfig::mma_sync([16, 16], [1, 1], 16, 8, 2),
];

/// Tiles of products of two bf16 operands.
pub const MULTISTAGE_BF16: &[TileConfig] = &[
    TileConfig::cluster_split_k([64, 64], 12, 2),
    TileConfig::cluster_split_k([64, 64], 12, 4),
    TileConfig::cluster_split_k([128, 64], 8, 4),
    TileConfig::clustered([128, 256], 4),
    TileConfig::clustered([128, 224], 4),
    TileConfig::warp_specialized([192, 192], 4),
    TileConfig::warp_specialized([192, 128], 5),
    TileConfig::warp_specialized([128, 192], 5),
    TileConfig::warp_specialized([128, 128], 6),
    TileConfig::warp_specialized([64, 128], 8),
    TileConfig::warp_specialized([64, 64], 12),
    TileConfig::bf16([256, 128], [4, 2], [[64, 3], [32, 3], [32, 2]], 4, 1),
    TileConfig::bf16([128, 128], [2, 4], [[64, 3], [32, 2], [32, 2]], 6, 2),
    TileConfig::bf16([64, 64], [2, 2], [[64, 3], [32, 2], [32, 2]], 6, 4),
];

/// Number of tiles of [`MULTISTAGE_BF16`] whose contraction is split in a cluster.
pub const CLUSTER_SPLIT_K_TILES: usize = 3;

/// Tiles of weight gradients: [`MULTISTAGE_BF16`] without the tiles that split K in a cluster.
pub const MULTISTAGE_BF16_WGRAD: &[TileConfig] = MULTISTAGE_BF16.split_at(CLUSTER_SPLIT_K_TILES).1;

/// Tiles of products of bf16 and NF4. NF4 codes also need shared memory, so there are fewer stages.
pub const MULTISTAGE_NF4: &[TileConfig] = &[
    TileConfig::bf16([192, 128], [12, 1], [[0, 0]; 3], 5, 1),
    TileConfig::bf16([256, 128], [4, 2], [[64, 2], [32, 3], [32, 2]], 4, 1),
    MULTISTAGE_BF16_WGRAD[9],
    MULTISTAGE_BF16_WGRAD[10],
];

/// Tiles of products of split operands. A stage holds both terms of each operand. Targets without
/// `wgmma` use the last tile.
pub const SPLIT_F16: &[TileConfig] = &[
    TileConfig::clustered([128, 128], 3),
    TileConfig::warp_specialized([128, 128], 3),
    TileConfig::warp_specialized([128, 96], 3),
    TileConfig::warp_specialized([128, 64], 4),
    TileConfig::warp_specialized([64, 64], 6),
    SIMT[1],
];

/// Tiles of [`Epilogue::QkvRope`](super::Epilogue::QkvRope). A warp of the last tile, for targets
/// without `wgmma`, holds whole heads.
pub const QKV_ROPE: &[TileConfig] = &[
    TileConfig::clustered([128, 256], 4),
    TileConfig::warp_specialized([192, 128], 5),
    TileConfig::warp_specialized([128, 128], 6),
    TileConfig::warp_specialized([64, 128], 8),
    TileConfig::bf16([128, 128], [8, 1], [[64, 3], [32, 2], [32, 2]], 0, 1),
];

/// Tiles of [`Epilogue::Glu`](super::Epilogue::Glu). A block computes a tile of both gate and
/// up.
pub const GLU: &[TileConfig] = &[
    TileConfig::clustered([128, 128], 4),
    TileConfig::warp_specialized([128, 64], 6),
    TileConfig::two_per_sm([64, 64], 4),
    TileConfig::bf16([128, 128], [2, 4], [[64, 3], [32, 2], [32, 2]], 0, 1),
];

/// Tiles of [`Epilogue::GluBackward`](super::Epilogue::GluBackward).
pub const GLU_BACKWARD: &[TileConfig] = &[
    TileConfig::clustered([128, 256], 4),
    TileConfig::warp_specialized([128, 192], 5),
    TileConfig::warp_specialized([128, 128], 6),
    TileConfig::bf16([128, 128], [2, 4], [[64, 3], [32, 2], [32, 2]], 0, 1),
];

#[cfg(test)]
mod tests {
    use super::*;

    const TABLES: [&[TileConfig]; 8] =
        [SIMT, MMA_SYNC, MULTISTAGE_BF16, MULTISTAGE_NF4, SPLIT_F16, QKV_ROPE, GLU, GLU_BACKWARD];

    #[test]
    fn blocks_are_whole_warps_of_at_most_1024_threads() {
        for tile in TABLES.concat() {
            let threads = tile.threads() + tile.wgmma_producers();
            assert!(threads > 0 && threads.is_multiple_of(32) && threads <= 1024, "{tile:?}");
            assert!(tile.block_k() > 0, "{tile:?}");
        }
    }

    #[test]
    fn thread_tiles_and_warps_divide_their_tile() {
        for TileConfig { shape: [m, n], mainloop, .. } in TABLES.concat() {
            let [rows, columns] = match mainloop {
                Mainloop::Simt { thread_tile, .. } => thread_tile,
                Mainloop::MmaSync { warps: [down, across], .. }
                | Mainloop::Multistage { warps: [down, across], .. } => [16 * down, 8 * across],
                Mainloop::WarpSpecialized { .. } => [CONSUMER_ROWS, 16],
            };
            assert!(m.is_multiple_of(rows) && n.is_multiple_of(columns), "{m} × {n}");
        }
    }
}
