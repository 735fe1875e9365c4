//! Configurations of the SIMT kernels, and the mapping of threads to elements of c.

use retrograph_kernel_abi::DType;
use retrograph_kernel_abi::gemm::{Mainloop, TileConfig};
use retrograph_ptx::build::{Kernel, Value, Var};

use crate::gemm::operand_tile::OperandTile;
use crate::primitives::arith::div_const;
use crate::primitives::smem_tile::Major;

/// The tile of a block, and its partition among threads.
pub(in crate::gemm) struct SimtConfig {
    pub(in crate::gemm) tile: TileConfig,
    /// Rows and columns of c per thread, multiples of 4.
    pub(in crate::gemm) thread_tile: [u32; 2],
    /// Elements of a stage along K per slice.
    pub(in crate::gemm) slice_k: u32,
    /// Slices of K that groups of threads multiply in parallel (sliced-K).
    pub(in crate::gemm) slices: u32,
    /// Stages in shared memory. With two, one is loaded while the other is multiplied.
    pub(in crate::gemm) stages: u32,
}

impl SimtConfig {
    /// The configuration of `tile`; `None` if it has another mainloop.
    pub(in crate::gemm) fn new(tile: &TileConfig) -> Option<Self> {
        let Mainloop::Simt { thread_tile, slice_k, slices, stages } = tile.mainloop else {
            return None;
        };
        Some(Self { tile: *tile, thread_tile, slice_k, slices, stages })
    }

    /// Threads of a slice, along M and N.
    fn slice_shape(&self) -> [u32; 2] {
        [0, 1].map(|side| self.tile.shape[side] / self.thread_tile[side])
    }

    /// Threads of a slice.
    fn slice_threads(&self) -> u32 {
        let [down, across] = self.slice_shape();
        down * across
    }

    /// Bands of rows. A thread has four rows of each band. The epilogue adds the slices band by
    /// band, so that it only needs shared memory for one band of every slice.
    pub(in crate::gemm) fn bands(&self) -> u32 {
        self.thread_tile[0] / 4
    }

    /// Rows of a band.
    pub(in crate::gemm) fn band_rows(&self) -> u32 {
        self.tile.shape[0] / self.bands()
    }

    /// Elements of shared memory for adding one band of all slices; 0 if there is only one slice.
    pub(in crate::gemm) fn slice_sums_len(&self) -> u32 {
        if self.slices == 1 { 0 } else { self.slices * self.band_rows() * self.tile.shape[1] }
    }

    /// Minimum blocks per SM for b of type `b_dtype`. With a large thread tile, NF4 codes in flight
    /// need more registers.
    pub(in crate::gemm) fn min_blocks_per_sm(&self, b_dtype: DType) -> u32 {
        let large = self.thread_tile[0] * self.thread_tile[1] >= 64;
        if b_dtype == DType::Nf4 && large { 1 } else { self.tile.min_blocks_per_sm }
    }

    /// The tile of an operand in a stage.
    pub(in crate::gemm) fn operand_tile(&self, extent: u32, major: Major) -> OperandTile {
        OperandTile::k_outer([extent, self.tile.block_k()], self.tile.threads(), major)
    }
}

/// The position of a thread: its slice, and its row and column in the slice's grid of threads.
pub(in crate::gemm) struct ThreadTile<'k> {
    pub(in crate::gemm) slice: Value<'k, u32>,
    pub(in crate::gemm) row: Value<'k, u32>,
    pub(in crate::gemm) column: Value<'k, u32>,
}

impl<'k> ThreadTile<'k> {
    /// The position of this thread. A warp covers 4 × 8 threads (8 × 4 in narrow tiles), so that it
    /// reads the fewest distinct vec4s per step of K.
    pub(in crate::gemm) fn new(k: &Kernel<'k>, config: &SimtConfig) -> Self {
        let tid = k.tid_x();
        let [_, across] = config.slice_shape();
        let threads = config.slice_threads();
        let (slice, thread) = (div_const(tid, threads), tid & (threads - 1));
        let lanes_across = across.min(8);
        let lanes_down = 32 / lanes_across;
        let warps_across = across / lanes_across;
        let (warp, lane) = (thread >> 5, thread & 31);
        let row = div_const(warp, warps_across) * lanes_down + div_const(lane, lanes_across);
        let column = (warp & (warps_across - 1)) * lanes_across + (lane & (lanes_across - 1));
        Self { slice, row, column }
    }
}

/// The elements of c that a thread computes, by row and column.
pub(in crate::gemm) type ThreadAccumulators<'k> = Vec<Vec<Var<'k, f32>>>;
