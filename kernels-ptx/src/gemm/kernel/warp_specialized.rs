//! GEMM of bf16 or split f16 for sm_90a: persistent blocks with a producer warp and consumer
//! warpgroups.
//! One thread of the producer warp copies the stages of all tiles by TMA. Each consumer warpgroup
//! multiplies 64 rows of a tile by `wgmma`. While consumers write a tile, the producer already
//! loads the next one.
//!
//! **Tile order.** Cluster i computes the tiles i, i + clusters, i + 2·clusters, … of its plane.
//! Here the tiles of a cluster count as one; they are numbered in bands of [`BAND`] rows of tiles,
//! column by column within a band, so that tiles that are computed at the same time share operands
//! in the L2 cache.
//!
//! **Clusters.** The blocks of a cluster compute tiles one below the other, with the same columns.
//! Each copies its share of b to all of them, so that b is read from the L2 cache once for a
//! cluster. A stage is empty when the consumers of all blocks have released it.
//!
//! **Result.** With a tensor map, c is written through shared memory and bulk stores; otherwise,
//! and if c is added to, from registers.
//!
//! **Split operands.** A stage has both parts of each operand, a plane of its tensor map each, and
//! is summed from zero; see [`wgmma_split_f16`](crate::gemm::mainloop::wgmma_split_f16).
//!
//! **Added products.** Their stages follow the stages of the first product.
//!
//! **Queries, keys and values.** Each tile belongs to one of three products with the same a; see
//! [`qkv_rope`](crate::gemm::qkv_rope).
//!
//! **SwiGLU.** The tile of b has the rows of gate and then of up, so that a thread has the
//! elements of both. Stages for results follow the stages of the products: empty ones in the
//! forward pass; in the backward pass, stages with 64 columns of gate and up each, which arrive
//! while the products are multiplied.
//!
//! **Determinism.** An element of c is a single chain along K, as in the multistage kernel.
//!
//! **Limits.** Operands have tensor maps with boxes of 64 × 64, and K is not empty.
//!
//! `setmaxnreg` is not used: the linker of the driver ignores it. The accumulators of a 128 × 256
//! tile fit, because a single producer warp leaves the consumers enough registers.

mod consumer;
mod producer;

use retrograph_kernel_abi::DType;
use retrograph_kernel_abi::gemm::{
    CONSUMER_ROWS, Epilogue, GemmImage, Mainloop, SPLIT_PARTS, TENSOR_MAP_BOX, TileConfig,
};
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Entry;
use retrograph_ptx::build::{Kernel, NamedBarrier, Shared, Value};

use crate::gemm::bulk_store::BUFFER_WORDS;
use crate::gemm::mainloop::wgmma;
use crate::gemm::operand_tile::{OperandTile, majors};
use crate::gemm::params::{GemmParams, tiles};
use crate::primitives::smem_tile::{Major, SmemTile};
use crate::primitives::swizzle::{SWIZZLE_ALIGNMENT, align_for_swizzle};
use crate::primitives::tma_pipeline::{BOX, BOX_WORDS, Stage, TmaPipeline, barrier_words};

/// Rows of tiles in a band.
const BAND: u32 = 8;

/// The configuration of one entry.
#[derive(Clone, Copy)]
pub(in crate::gemm) struct WarpSpecializedKernel {
    target: SmTarget,
    tile: TileConfig,
    stages: u32,
    /// Blocks of a cluster.
    cluster: u32,
    majors: [Major; 2],
    image: GemmImage,
}

/// The tile that a block computes.
struct Tile<'k> {
    /// The product to whose result it belongs.
    product: GemmParams<'k>,
    /// First row and column.
    origin: [Value<'k, u32>; 2],
}

impl WarpSpecializedKernel {
    /// The kernel for `tile` in `image`, if `target` supports it.
    pub(in crate::gemm) fn new(
        target: SmTarget,
        image: &GemmImage,
        tile: &TileConfig,
    ) -> Option<Self> {
        let Mainloop::WarpSpecialized { stages, cluster } = tile.mainloop else { return None };
        let features = target.features();
        let (majors, image) = (majors(image.layout), *image);
        let kernel = Self { target, tile: *tile, stages, cluster, majors, image };
        (features.wgmma && features.tma).then_some(kernel)
    }

    fn warpgroups(self) -> u32 {
        self.tile.shape[0] / CONSUMER_ROWS
    }

    fn consumer_threads(self) -> u32 {
        self.tile.threads()
    }

    /// Columns that a consumer accumulates: of the tile, or of gate and up.
    fn columns(self) -> u32 {
        match self.image.epilogue {
            Epilogue::SwiGlu => 2 * self.tile.shape[1],
            Epilogue::Linear | Epilogue::QkvRope | Epilogue::SwiGluBackward => self.tile.shape[1],
        }
    }

    /// The tiles of a and b in a stage, whole boxes. The tile of gate and up has first the rows of
    /// gate.
    fn tiles(self) -> [OperandTile; 2] {
        let extents = [self.tile.shape[0], self.columns().next_multiple_of(BOX)];
        [0, 1].map(|operand| {
            OperandTile::swizzled([extents[operand], wgmma::TILE_K], 1, self.majors[operand])
        })
    }

    /// Parts of an operand: two if it is split.
    fn parts(self) -> u32 {
        if self.image.a == DType::F16 { SPLIT_PARTS } else { 1 }
    }

    fn stage_words(self) -> u32 {
        self.tiles().iter().map(|tile| self.parts() * tile.smem.words()).sum()
    }

    /// The tile of gate or up in a stage that has them.
    fn input_tile(self) -> SmemTile {
        SmemTile::swizzled_16_bit([self.tile.shape[0], BOX])
    }

    /// The addresses of a and b in a stage.
    fn operands(self, stage: Stage<'_>) -> [Shared<'_, u32>; 2] {
        let a_words = self.parts() * self.tiles()[0].smem.words();
        [stage.smem, stage.smem.offset(i64::from(a_words))]
    }

    /// The addresses of the parts of a and b in a stage.
    fn split_operands(self, stage: Stage<'_>) -> [[Shared<'_, u32>; SPLIT_PARTS as usize]; 2] {
        let (operands, tiles) = (self.operands(stage), self.tiles());
        [0, 1].map(|operand| {
            [0, 1]
                .map(|part| operands[operand].offset(part * i64::from(tiles[operand].smem.words())))
        })
    }

    /// The addresses of gate and up in a stage that has them.
    fn inputs(self, stage: Stage<'_>) -> [Shared<'_, u32>; 2] {
        [0, self.input_tile().words()].map(|words| stage.smem.offset(i64::from(words)))
    }

    /// Dynamic shared memory in bytes: stages, buffers of results, and barriers.
    pub(in crate::gemm) fn smem_bytes(self) -> u32 {
        self.smem_bytes_with(self.store_buffers())
    }

    /// The same with this number of buffers for each warpgroup.
    fn smem_bytes_with(self, buffers: u32) -> u32 {
        let stages = self.stages * self.stage_words();
        let words = stages + self.buffer_words(buffers) + barrier_words(self.stages);
        words * 4 + SWIZZLE_ALIGNMENT
    }

    /// Words of this number of buffers for each warpgroup.
    fn buffer_words(self, buffers: u32) -> u32 {
        buffers * self.warpgroups() * BUFFER_WORDS
    }

    /// Buffers of results of a warpgroup: two if they fit. SwiGLU writes its results from stages.
    fn store_buffers(self) -> u32 {
        let fits = self.smem_bytes_with(2) <= self.target.features().smem_bytes_per_block;
        match self.image.epilogue {
            Epilogue::Linear | Epilogue::QkvRope => 1 + u32::from(fits),
            Epilogue::SwiGlu | Epilogue::SwiGluBackward => 0,
        }
    }

    /// The boxes of 64 columns in a stage that have the rows of a warpgroup: of gate and up in the
    /// backward pass, of results after it.
    fn boxes<'k>(self, stage: Stage<'k>, warpgroup: Value<'k, u32>) -> Vec<Shared<'k, u32>> {
        let rows = stage.smem.at(warpgroup * BOX_WORDS);
        let box_of_tile = |index| rows.offset(i64::from(index * self.input_tile().words()));
        (0..self.boxes_per_stage()).map(box_of_tile).collect()
    }

    /// Boxes of a stage that have the rows of a warpgroup.
    fn boxes_per_stage(self) -> u32 {
        self.stage_words() / self.input_tile().words()
    }

    /// Stages for the results of a tile in the forward pass of SwiGLU: gate, up and out in one or
    /// two stages for each 64 columns.
    fn result_stages(self) -> u32 {
        self.tile.shape[1] / BOX * 3u32.div_ceil(self.boxes_per_stage().min(3))
    }

    /// The entry `name`.
    pub(in crate::gemm) fn entry(self, name: &str) -> Entry {
        Kernel::build(name, |k| {
            k.max_threads(self.consumer_threads() + self.tile.wgmma_producers());
            k.min_blocks(self.tile.min_blocks_per_sm);
            if self.cluster > 1 {
                k.cluster_blocks(self.cluster);
            }
            let dtypes = [self.image.a, self.image.b];
            let params = GemmParams::declare_all(k, dtypes, &self.image);
            let smem = align_for_swizzle(k, k.dynamic_shared());
            let stores = smem.offset(i64::from(self.stages * self.stage_words()));
            let buffers = self.buffer_words(self.store_buffers());
            let barriers = stores.offset(i64::from(buffers)).reinterpret();
            let stages = (self.stages, self.stage_words());
            let pipeline = TmaPipeline::new(k, stages, (smem, barriers)).of_cluster(self.cluster);
            k.when(k.tid_x().eq(0), || {
                pipeline.init(self.consumer_threads() / 32);
                k.fence_mbarrier_init();
            });
            self.synchronize(k);
            // Broadcast within the warp, so that the compiler knows it is uniform.
            let warp = k.shfl_idx(k.warp(), 0);
            k.when_else(
                warp.eq(self.consumer_threads() / 32),
                || k.when(k.lane().eq(0), || self.produce(&pipeline, &params)),
                || self.consume(&pipeline, &params, (warp, stores)),
            );
            if self.cluster > 1 {
                // Others may still arrive at the barriers of this block.
                self.synchronize(k);
            }
        })
    }

    /// Waits for all threads of the cluster.
    fn synchronize(self, k: &Kernel<'_>) {
        if self.cluster > 1 {
            k.barrier_cluster_arrive();
            k.barrier_cluster_wait();
        } else {
            k.barrier();
        }
    }

    /// The barrier at which the other warpgroups let the first one start ahead.
    fn stagger<'k>(self, k: &Kernel<'k>) -> NamedBarrier<'k> {
        NamedBarrier { id: k.constant(self.warpgroups() + 1), threads: self.consumer_threads() }
    }

    /// Runs `body` for every tile of this block.
    fn for_each_tile<'k>(
        self,
        k: &Kernel<'k>,
        params: &GemmParams<'k>,
        body: impl FnOnce(Tile<'k>),
    ) {
        let [rows, columns] = self.tile.shape;
        let (rank, cluster_rows) = match self.cluster {
            1 => (k.constant(0), rows),
            blocks => (k.cluster_ctarank(), rows * blocks),
        };
        let (tiles_m, tiles_n) = (tiles(params.m, cluster_rows), params.tiles_across(columns));
        let band_tiles = tiles_n * BAND;
        let [first, clusters] = [k.ctaid_x(), k.nctaid_x()].map(|blocks| blocks / self.cluster);
        k.range(first, tiles_m * tiles_n, clusters, |index| {
            let band = index / band_tiles;
            let within = index - band * band_tiles;
            let height = (tiles_m - band * BAND).min(BAND);
            let across = within / height;
            let row = band * BAND + (within - across * height);
            let (product, column) = params.product_of(across, columns);
            body(Tile { product, origin: [row * cluster_rows + rank * rows, column] });
        });
    }
}

const _: () = assert!(
    TENSOR_MAP_BOX[0] == wgmma::TILE_K && TENSOR_MAP_BOX[1] == CONSUMER_ROWS,
    "a box is a stage along K and the rows of a warpgroup"
);
