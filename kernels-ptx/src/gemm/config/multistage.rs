//! Configurations of the multistage kernels.

use retrograph_kernel_abi::gemm::{Mainloop, TileConfig};

/// The tile of a block, and how its warps share it.
#[derive(Clone, Copy)]
pub(in crate::gemm) struct MultistageConfig {
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
    /// Threads of the producer warps with `wgmma`.
    pub(in crate::gemm) wgmma_producers: u32,
}

impl MultistageConfig {
    /// The configuration of `tile`, if its mainloop is this one.
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
