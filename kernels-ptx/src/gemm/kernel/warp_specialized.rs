//! Persistent warp-specialized GEMM of bf16 or split f16 for sm_90a.
//!
//! The producer warp fills the stages of all tiles by TMA. Each consumer warpgroup
//! multiplies 64 rows of a tile by `wgmma`. While consumers write a tile, the producer already
//! loads the next one.
//!
//! **Tile order.** Cluster i computes the tiles i, i + clusters, i + 2·clusters, … of its plane,
//! where the tiles of a cluster count as one. Tiles are numbered in bands of [`BAND`] rows of
//! tiles, column by column within a band, so that concurrent tiles share operands in the L2 cache.
//!
//! **Row limit.** Tiles from the limit on are not numbered. Producer and consumers read the same
//! limit, which does not change during the launch, so they agree on the tiles.
//!
//! **Clusters along M.** The tiles of a cluster are stacked along M and share their columns of b.
//! Each block multicasts its share of b to all of them, so a cluster reads b from the L2 cache
//! once. A stage is empty when the consumers of all blocks have released it.
//!
//! **Clusters along K.** The blocks of a cluster multiply ranges of K of the same tile, and the
//! first one adds and writes it; see [`cluster_split_k`].
//!
//! **Result.** c is written through shared memory: by bulk stores if it has a tensor map, and by
//! threads otherwise and if the product accumulates.
//!
//! **Split operands.** A stage holds both terms of each operand, which are planes of its tensor
//! map. Each stage accumulates from zero and is then added in f32; see
//! [`wgmma_split_f16`](crate::gemm::mainloop::wgmma_split_f16).
//!
//! **Added products.** Their stages follow the stages of the first product.
//!
//! **Queries, keys and values.** Each tile belongs to one of three products with the same a; see
//! [`qkv_rope`](crate::gemm::qkv_rope).
//!
//! **Gated linear units.** The tile of b holds the rows of gate and then the rows of up. A thread
//! therefore has the elements of both. Further stages follow the stages of the product. In the
//! forward pass they are empty and receive the results. In the backward pass each is loaded with
//! 64 columns of gate and up while the product is computed. The gradients then replace them.
//!
//! **Determinism.** An element of c accumulates in a single chain along K, as in the multistage
//! kernel. The blocks of a cluster along K have one chain each, which are added in ascending order.
//!
//! **Limits.** Operands have tensor maps with boxes of 64 × 64, and K is not empty.
//!
//! `setmaxnreg` is not used, because the linker of the driver ignores it. The accumulators of a
//! 128 × 256 tile fit because a single producer warp leaves the consumers enough registers.

mod cluster_split_k;
mod consumer;
mod producer;

use retrograph_kernel_abi::DType;
use retrograph_kernel_abi::gemm::{
    CONSUMER_ROWS, Cluster, Epilogue, GemmImage, Mainloop, SPLIT_MAX_TERMS, TENSOR_MAP_BOX,
    TileConfig,
};
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Entry;
use retrograph_ptx::build::{Kernel, NamedBarrier, Shared, Value};

use crate::gemm::bulk_store::BUFFER_WORDS;
use crate::gemm::mainloop::wgmma;
use crate::gemm::operand_tile::{OperandTile, majors};
use crate::gemm::params::GemmParams;
use crate::primitives::smem_tile::{Major, SmemTile};
use crate::primitives::swizzle::{SWIZZLE_ALIGNMENT, align_for_swizzle};
use crate::primitives::tma_pipeline::{
    BOX, BOX_WORDS, Producer, Stage, TmaPipeline, barrier_words,
};

/// Rows of tiles in a band.
const BAND: u32 = 8;

/// The configuration of one entry.
#[derive(Clone, Copy)]
pub(in crate::gemm) struct WarpSpecializedKernel {
    target: SmTarget,
    tile: TileConfig,
    stages: u32,
    cluster: Cluster,
    majors: [Major; 2],
    image: GemmImage,
}

/// A tile of c that a block computes.
struct Tile<'k> {
    /// The product that it belongs to.
    product: GemmParams<'k>,
    /// First row and column.
    origin: [Value<'k, u32>; 2],
}

impl WarpSpecializedKernel {
    /// The kernel for `tile` in `image`; `None` if `target` does not support it.
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

    /// Columns that a consumer accumulates: in a gated linear unit, the columns of gate and of up.
    fn columns(self) -> u32 {
        match self.image.epilogue {
            Epilogue::Glu(_) => 2 * self.tile.shape[1],
            Epilogue::Linear | Epilogue::QkvRope | Epilogue::GluBackward(_) => self.tile.shape[1],
        }
    }

    /// The tiles of a and b in a stage, in whole boxes. In a gated linear unit, b holds the rows
    /// of gate and then the rows of up.
    fn tiles(self) -> [OperandTile; 2] {
        let extents = [self.tile.shape[0], self.columns().next_multiple_of(BOX)];
        [0, 1].map(|operand| {
            OperandTile::swizzled([extents[operand], wgmma::TILE_K], 1, self.majors[operand])
        })
    }

    /// Terms of an operand: two if it is split.
    fn terms(self) -> u32 {
        if self.image.a == DType::F16 { SPLIT_MAX_TERMS } else { 1 }
    }

    fn stage_words(self) -> u32 {
        self.tiles().iter().map(|tile| self.terms() * tile.smem.words()).sum()
    }

    /// The tile of gate or of up in an input stage.
    fn input_tile(self) -> SmemTile {
        SmemTile::swizzled_16_bit([self.tile.shape[0], BOX])
    }

    /// The addresses of a and b in a stage.
    fn operands(self, stage: Stage<'_>) -> [Shared<'_, u32>; 2] {
        let a_words = self.terms() * self.tiles()[0].smem.words();
        [stage.smem, stage.smem.offset(i64::from(a_words))]
    }

    /// The addresses of the terms of a and b in a stage.
    fn split_operands(self, stage: Stage<'_>) -> [[Shared<'_, u32>; SPLIT_MAX_TERMS as usize]; 2] {
        let (operands, tiles) = (self.operands(stage), self.tiles());
        [0, 1].map(|operand| {
            [0, 1]
                .map(|term| operands[operand].offset(term * i64::from(tiles[operand].smem.words())))
        })
    }

    /// The addresses of gate and up in an input stage.
    fn inputs(self, stage: Stage<'_>) -> [Shared<'_, u32>; 2] {
        [0, self.input_tile().words()].map(|words| stage.smem.offset(i64::from(words)))
    }

    /// Dynamic shared memory in bytes: stages, result buffers and barriers.
    pub(in crate::gemm) fn smem_bytes(self) -> u32 {
        self.smem_bytes_with(self.store_buffers())
    }

    /// Dynamic shared memory in bytes with this number of result buffers per warpgroup.
    fn smem_bytes_with(self, buffers: u32) -> u32 {
        let stages = self.stages * self.stage_words();
        let words = stages + self.buffer_words(buffers) + barrier_words(self.stages);
        words * 4 + SWIZZLE_ALIGNMENT
    }

    /// Words of this number of result buffers per warpgroup.
    fn buffer_words(self, buffers: u32) -> u32 {
        buffers * self.warpgroups() * BUFFER_WORDS
    }

    /// Result buffers per warpgroup: two if they fit, else one. Gated linear units write results
    /// from stages.
    fn store_buffers(self) -> u32 {
        let fits = self.smem_bytes_with(2) <= self.target.features().smem_bytes_per_block;
        match self.image.epilogue {
            Epilogue::Linear | Epilogue::QkvRope => 1 + u32::from(fits),
            Epilogue::Glu(_) | Epilogue::GluBackward(_) => 0,
        }
    }

    /// The boxes of 64 columns in a stage for the rows of a warpgroup: inputs or results of a gated
    /// linear unit.
    fn boxes<'k>(self, stage: Stage<'k>, warpgroup: Value<'k, u32>) -> Vec<Shared<'k, u32>> {
        let rows = stage.smem.at(warpgroup * BOX_WORDS);
        let box_of_tile = |index| rows.offset(i64::from(index * self.input_tile().words()));
        (0..self.boxes_per_stage()).map(box_of_tile).collect()
    }

    /// Boxes of a stage per warpgroup.
    fn boxes_per_stage(self) -> u32 {
        self.stage_words() / self.input_tile().words()
    }

    /// Result stages of a tile in the forward pass of a gated linear unit: one or two per 64
    /// columns, for gate, up and out.
    fn result_stages(self) -> u32 {
        self.tile.shape[1] / BOX * 3u32.div_ceil(self.boxes_per_stage().min(3))
    }

    /// The entry `name`.
    pub(in crate::gemm) fn entry(self, name: &str) -> Entry {
        Kernel::build(name, |k| {
            k.max_threads(self.consumer_threads() + self.tile.wgmma_producers());
            k.min_blocks(self.tile.min_blocks_per_sm);
            if self.cluster.blocks() > 1 {
                k.cluster_blocks(self.cluster.blocks());
            }
            let params = GemmParams::declare(k, &self.image);
            let smem = align_for_swizzle(k, k.dynamic_shared());
            let stores = smem.offset(i64::from(self.stages * self.stage_words()));
            let buffers = self.buffer_words(self.store_buffers());
            let barriers = stores.offset(i64::from(buffers)).reinterpret();
            let (producer, stages) = (Producer::Warp, self.stages);
            let pipeline =
                TmaPipeline::new(k, producer, stages, self.stage_words(), smem, barriers);
            let pipeline = pipeline.of_cluster(self.cluster.m);
            k.when(k.tid_x().eq(0), || {
                pipeline.init(self.consumer_threads() / 32);
                k.fence_mbarrier_init();
            });
            self.synchronize(k);
            // The broadcast tells the compiler that the value is warp-uniform.
            let warp = k.shfl_idx(k.warp(), 0);
            k.when_else(
                warp.eq(self.consumer_threads() / 32),
                || self.produce(&pipeline, &params),
                || self.consume(&pipeline, &params, warp, stores),
            );
            if self.cluster.m > 1 {
                // Other blocks may still arrive at the barriers of this block.
                self.synchronize(k);
            }
        })
    }

    /// Waits for all threads of the blocks that fill each other's stages.
    fn synchronize(self, k: &Kernel<'_>) {
        if self.cluster.m > 1 {
            synchronize_cluster(k);
        } else {
            k.barrier();
        }
    }

    /// The barrier at which the other warpgroups wait until the first one is ahead.
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
        let (rank, cluster_rows) = match self.cluster.m {
            1 => (k.constant(0), rows),
            blocks => (k.cluster_ctarank(), rows * blocks),
        };
        let (tiles_m, tiles_n) = (params.tiles_down(cluster_rows), params.tiles_across(columns));
        let band_tiles = tiles_n * BAND;
        let [first, clusters] =
            [k.ctaid_x(), k.nctaid_x()].map(|blocks| blocks / self.cluster.blocks());
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

/// Waits for all threads of the cluster.
fn synchronize_cluster(k: &Kernel<'_>) {
    k.barrier_cluster_arrive();
    k.barrier_cluster_wait();
}

const _: () = assert!(
    TENSOR_MAP_BOX[0] == wgmma::TILE_K && TENSOR_MAP_BOX[1] == CONSUMER_ROWS,
    "a box is a stage along K and the rows of a warpgroup"
);
