//! Configurations of the multistage kernels.

use retrograph_kernel_abi::gemm::{Mainloop, TileConfig};

/// The tile of a block, and its partition among warps.
#[derive(Clone, Copy)]
pub(in crate::gemm) struct MultistageConfig {
    /// Rows and columns of c.
    pub(in crate::gemm) tile: [u32; 2],
    /// Warps along M and N.
    pub(in crate::gemm) warps: [u32; 2],
    /// Minimum blocks per SM, which limits the registers per thread.
    pub(in crate::gemm) min_blocks_per_sm: u32,
    /// Elements of a stage along K and number of stages for `mma.sync`, for targets with 160 KiB,
    /// 99 KiB and 64 KiB of shared memory per block. `[0, 0]` if the accumulators do not fit in
    /// registers.
    pub(in crate::gemm) mma_sync_stages: [[u32; 2]; 3],
    /// Number of stages for `wgmma` in bf16.
    pub(in crate::gemm) wgmma_stages: u32,
    /// Threads of the producer warps with `wgmma`.
    pub(in crate::gemm) wgmma_producers: u32,
}

impl MultistageConfig {
    /// The configuration of `tile`; `None` if it has another mainloop.
    pub(in crate::gemm) fn new(tile: &TileConfig) -> Option<Self> {
        let TileConfig { shape: tile, mainloop, min_blocks_per_sm } = *tile;
        let Mainloop::Multistage { warps, stages: mma_sync_stages, wgmma_stages, wgmma_producers } =
            mainloop
        else {
            return None;
        };
        Some(Self {
            tile,
            warps,
            min_blocks_per_sm,
            mma_sync_stages,
            wgmma_stages,
            wgmma_producers,
        })
    }
}
