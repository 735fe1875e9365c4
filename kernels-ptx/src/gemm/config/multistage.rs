//! Configurations of the multistage kernels, by the type of b.

use crate::primitives::dtype::DType;

/// The tile of a block, and how its warps share it.
#[derive(Clone, Copy)]
pub(in crate::gemm) struct MultistageConfig {
    /// Suffix of the entry name.
    name: &'static str,
    /// Rows and columns of c.
    pub(in crate::gemm) tile: [u32; 2],
    /// Warps along M and N.
    pub(in crate::gemm) warps: [u32; 2],
    /// Blocks per SM, which limits the registers of a thread.
    pub(in crate::gemm) min_blocks_per_sm: u32,
    /// Elements of a stage along K, and number of stages, for `mma.sync`: if a block can have 160
    /// KiB of shared memory, 99 KiB, or 64 KiB. `[0, 0]` if the accumulators do not fit in
    /// registers.
    pub(in crate::gemm) mma_sync_stages: [[u32; 2]; 3],
    /// Number of stages for `wgmma` in bf16.
    pub(in crate::gemm) wgmma_stages: u32,
}

impl MultistageConfig {
    /// The name of the entry in `image`, for b of type `b_dtype`. The f32 image has other
    /// mainloops, too.
    pub(in crate::gemm) fn entry_name(&self, image: &str, b_dtype: DType) -> String {
        match b_dtype {
            DType::F32 => format!("{image}_multistage_{}", self.name),
            DType::Bf16 | DType::Nf4 => format!("{image}_{}", self.name),
        }
    }
}

/// The configurations for b of type `b_dtype`; a is f32 if b is, otherwise bf16.
pub(in crate::gemm) fn configs(b_dtype: DType) -> &'static [MultistageConfig] {
    match b_dtype {
        DType::F32 => &F32,
        DType::Bf16 => &BF16,
        DType::Nf4 => &NF4,
    }
}

const F32: [MultistageConfig; 2] = [
    MultistageConfig {
        name: "128x128",
        tile: [128, 128],
        warps: [2, 4],
        min_blocks_per_sm: 1,
        mma_sync_stages: [[32, 4], [32, 2], [16, 2]],
        wgmma_stages: 0,
    },
    MultistageConfig {
        name: "64x64",
        tile: [64, 64],
        warps: [2, 2],
        min_blocks_per_sm: 3,
        mma_sync_stages: [[32, 4], [32, 2], [16, 2]],
        wgmma_stages: 0,
    },
];

const BF16: [MultistageConfig; 5] = [
    MultistageConfig {
        name: "192x256",
        tile: [192, 256],
        warps: [12, 1],
        min_blocks_per_sm: 1,
        mma_sync_stages: [[0, 0]; 3],
        wgmma_stages: 4,
    },
    MultistageConfig {
        name: "128x192",
        tile: [128, 192],
        warps: [8, 1],
        min_blocks_per_sm: 1,
        mma_sync_stages: [[0, 0]; 3],
        wgmma_stages: 5,
    },
    MultistageConfig {
        name: "256x128",
        tile: [256, 128],
        warps: [4, 2],
        min_blocks_per_sm: 1,
        mma_sync_stages: [[64, 3], [32, 3], [32, 2]],
        wgmma_stages: 4,
    },
    MultistageConfig {
        name: "128x128",
        tile: [128, 128],
        warps: [2, 4],
        min_blocks_per_sm: 2,
        mma_sync_stages: [[64, 3], [32, 2], [32, 2]],
        wgmma_stages: 6,
    },
    MultistageConfig {
        name: "64x64",
        tile: [64, 64],
        warps: [2, 2],
        min_blocks_per_sm: 4,
        mma_sync_stages: [[64, 3], [32, 2], [32, 2]],
        wgmma_stages: 6,
    },
];

/// NF4 codes need shared memory, too.
const NF4: [MultistageConfig; 4] = [
    MultistageConfig {
        name: "192x128",
        tile: [192, 128],
        warps: [12, 1],
        min_blocks_per_sm: 1,
        mma_sync_stages: [[0, 0]; 3],
        wgmma_stages: 5,
    },
    MultistageConfig { mma_sync_stages: [[64, 2], [32, 3], [32, 2]], ..BF16[2] },
    BF16[3],
    BF16[4],
];
