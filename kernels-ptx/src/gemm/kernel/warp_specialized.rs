//! bf16 GEMM for sm_90a: persistent blocks with a producer warp and consumer warpgroups.
//!
//! One thread of the producer warp copies the stages of all tiles by TMA. Each consumer warpgroup
//! multiplies 64 rows of a tile by `wgmma`. While consumers write a tile, the producer already
//! loads the next one.
//!
//! **Tile order.** Block i computes the tiles i, i + blocks, i + 2·blocks, … of its plane. Tiles
//! are numbered in bands of [`BAND`] rows of tiles, column by column within a band, so that tiles
//! that are computed at the same time share operands in the L2 cache.
//!
//! **Result.** With a tensor map, c is written through shared memory and bulk stores; otherwise,
//! and if c is added to, from registers.
//!
//! **Second product.** Its stages follow the stages of the first.
//!
//! **Determinism.** An element of c is a single chain along K, as in the multistage kernel.
//!
//! **Limits.** Operands have tensor maps with boxes of 64 × 64, and K is not empty.
//!
//! `setmaxnreg` is not used: the linker of the driver ignores it. The accumulators of a 128 × 256
//! tile fit, because a single producer warp leaves the consumers enough registers.

use retrograph_kernel_abi::DType;
use retrograph_kernel_abi::gemm::{CONSUMER_ROWS, GemmImage, Mainloop, TENSOR_MAP_BOX, TileConfig};
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Entry;
use retrograph_ptx::build::{Kernel, NamedBarrier, ScaleD, Shared, Value, Var};

use crate::gemm::accumulator::{AccFragment, WarpTile, acc_row};
use crate::gemm::bulk_store::{BulkStore, STORE_WORDS};
use crate::gemm::epilogue::Epilogue;
use crate::gemm::layout::{Major, majors};
use crate::gemm::mainloop::wgmma;
use crate::gemm::params::GemmParams;
use crate::gemm::smem_tile::{SmemLayout, SmemTile};
use crate::primitives::swizzle::{SWIZZLE_ALIGNMENT, align_for_swizzle};
use crate::primitives::tma_pipeline::{
    BOX, PipelineState, Stage, TmaPipeline, barrier_words, copy_boxes,
};

/// Rows of tiles in a band.
const BAND: u32 = 8;
/// Stages by which the first consumer warpgroup is ahead of the others. While one writes a tile,
/// the others have the tensor cores.
const LEAD: u32 = 2;

/// The configuration of one entry.
#[derive(Clone, Copy)]
pub(in crate::gemm) struct WarpSpecializedKernel {
    target: SmTarget,
    tile: TileConfig,
    stages: u32,
    majors: [Major; 2],
    has_second_product: bool,
}

/// The tile that a block computes.
struct Tile<'k> {
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
        let Mainloop::WarpSpecialized { stages } = tile.mainloop else { return None };
        let features = target.features();
        let (majors, has_second_product) = (majors(image.layout), image.has_second_product());
        let kernel = Self { target, tile: *tile, stages, majors, has_second_product };
        (features.wgmma && features.tma).then_some(kernel)
    }

    fn warpgroups(self) -> u32 {
        self.tile.shape[0] / CONSUMER_ROWS
    }

    fn consumer_threads(self) -> u32 {
        self.tile.threads()
    }

    /// The tiles of a and b in a stage.
    fn smem_tiles(self) -> [SmemTile; 2] {
        [0, 1].map(|operand| SmemTile {
            extent: self.tile.shape[operand],
            tile_k: wgmma::TILE_K,
            threads: 1,
            major: self.majors[operand],
            dtype: DType::Bf16,
            layout: SmemLayout::Swizzled,
        })
    }

    fn stage_words(self) -> u32 {
        self.smem_tiles().iter().map(|tile| tile.words()).sum()
    }

    /// The addresses of a and b in a stage.
    fn operands(self, stage: Stage<'_>) -> [Shared<'_, u32>; 2] {
        [stage.smem, stage.smem.offset(i64::from(self.smem_tiles()[0].words()))]
    }

    /// Dynamic shared memory in bytes: stages, buffers of results, and barriers.
    pub(in crate::gemm) fn smem_bytes(self) -> u32 {
        let stages = self.stages * self.stage_words();
        let barriers = barrier_words(self.stages);
        (stages + self.warpgroups() * STORE_WORDS + barriers) * 4 + SWIZZLE_ALIGNMENT
    }

    /// The entry `name`.
    pub(in crate::gemm) fn entry(self, name: &str) -> Entry {
        Kernel::build(name, |k| {
            k.max_threads(self.consumer_threads() + self.tile.wgmma_producers());
            k.min_blocks(self.tile.min_blocks_per_sm);
            let dtypes = [DType::Bf16; 2];
            let params = GemmParams::declare_with_second(k, dtypes, self.has_second_product);
            let smem = align_for_swizzle(k, k.dynamic_shared());
            let stores = smem.offset(i64::from(self.stages * self.stage_words()));
            let barriers = stores.offset(i64::from(self.warpgroups() * STORE_WORDS)).reinterpret();
            let stages = (self.stages, self.stage_words());
            let pipeline = TmaPipeline::new(k, stages, (smem, barriers));
            k.when(k.tid_x().eq(0), || {
                pipeline.init(self.consumer_threads() / 32);
                k.fence_mbarrier_init();
            });
            k.barrier();
            // Broadcast within the warp, so that the compiler knows it is uniform.
            let warp = k.shfl_idx(k.warp(), 0);
            k.when_else(
                warp.eq(self.consumer_threads() / 32),
                || k.when(k.lane().eq(0), || self.produce(&pipeline, &params)),
                || self.consume(&pipeline, &params, (warp, stores)),
            );
        })
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
        // Extents are below 2^31.
        let tiles_m = (params.m + (rows - 1)) / rows;
        let tiles_n = (params.n + (columns - 1)) / columns;
        let band_tiles = tiles_n * BAND;
        k.range(k.ctaid_x(), tiles_m * tiles_n, k.nctaid_x(), |index| {
            let band = index / band_tiles;
            let within = index - band * band_tiles;
            let height = (tiles_m - band * BAND).min(BAND);
            let column = within / height;
            let row = band * BAND + (within - column * height);
            body(Tile { origin: [row * rows, column * columns] });
        });
    }

    /// The producer thread: fills the stages of all tiles of the block.
    fn produce<'k>(self, pipeline: &TmaPipeline<'k>, params: &GemmParams<'k>) {
        let k = &params.m.kernel();
        let maps = params.maps.expect("both operands are bf16");
        let state = PipelineState::new(k);
        let first = ([maps.a, maps.b], params.k);
        let second = params.second.map(|second| (second.maps, second.k));
        self.for_each_tile(k, params, |tile| {
            for (maps, k_len) in [first].into_iter().chain(second) {
                k.range(0, k_len, wgmma::TILE_K, |k_start| {
                    pipeline.fill(state, self.stage_words() * 4, |stage, full| {
                        let operands = maps.into_iter().zip(self.operands(stage));
                        let tiles = self.smem_tiles().into_iter().zip(tile.origin);
                        for ((tile, start), (map, to)) in tiles.zip(operands) {
                            let boxes = (to, tile.extent / BOX);
                            copy_boxes(boxes, (map, k.ctaid_z()), full, |index| match tile.major {
                                Major::K => [k_start, start + index * BOX],
                                Major::Mn => [start + index * BOX, k_start],
                            });
                        }
                    });
                });
            }
        });
    }

    /// Length of the contraction and of the second contraction, each with its padding.
    fn contraction<'k>(self, params: &GemmParams<'k>) -> Value<'k, u32> {
        params.second.map_or(params.k, |second| {
            ((params.k + (wgmma::TILE_K - 1)) & !(wgmma::TILE_K - 1)) + second.k
        })
    }

    /// A consumer warpgroup: multiplies and writes 64 rows of every tile of the block.
    fn consume<'k>(
        self,
        pipeline: &TmaPipeline<'k>,
        params: &GemmParams<'k>,
        (warp, stores): (Value<'k, u32>, Shared<'k, u32>),
    ) {
        let k = &params.m.kernel();
        let state = PipelineState::new(k);
        let warpgroup = warp >> 2;
        let acc = acc_row(k, self.tile.shape[1]);
        let store = BulkStore::new(k, self.target, (warpgroup, stores.at(warpgroup * STORE_WORDS)));
        let maps = params.maps.expect("both operands are bf16");
        let (staggered, k_len) = (k.var(0u32), self.contraction(params));
        self.for_each_tile(k, params, |tile| {
            self.multiply(pipeline, (state, warpgroup, staggered), (k_len, &acc));
            let [row, column] = tile.origin;
            k.when_else(
                maps.writes_c,
                || {
                    let rows = (params, [row + warpgroup * CONSUMER_ROWS, column]);
                    let c = (maps.c, k.ctaid_z());
                    let (_, is_bf16) = params.c.bf16.expect("c may be bf16");
                    k.when_else(
                        is_bf16,
                        || store.write_bf16(c, rows, &acc),
                        || store.write_f32(c, rows, &acc),
                    );
                },
                || {
                    let bf16_target = Some(self.target);
                    let epilogue =
                        Epilogue { kernel: *k, bf16_target, params: *params, origin: tile.origin };
                    let warp_tile = WarpTile::of_warpgroup(k, CONSUMER_ROWS);
                    let acc = std::slice::from_ref(&acc);
                    warp_tile.for_each_pair(k, acc, |row, column, pair| {
                        epilogue.write(row, column, &pair);
                    });
                },
            );
        });
        store.wait();
    }

    /// Adds the products of all stages of a tile to `acc`.
    fn multiply<'k>(
        self,
        pipeline: &TmaPipeline<'k>,
        (state, warpgroup, staggered): (PipelineState<'k>, Value<'k, u32>, Var<'k, u32>),
        (k_len, acc): (Value<'k, u32>, &Vec<AccFragment<'k>>),
    ) {
        let k = &k_len.kernel();
        let offset = warpgroup * wgmma::warpgroup_words(CONSUMER_ROWS);
        let acc = std::slice::from_ref(acc);
        let leader = k.lane().eq(0);
        let first = staggered.get().eq(0);
        k.bar_sync(self.stagger(k), Some(first & warpgroup.ne(0)));
        let first = first & warpgroup.eq(0);
        let tiles = self.smem_tiles();
        // Starting the first stage from zero ends the life of the previous tile's accumulators.
        let stage = pipeline.wait_full(state);
        wgmma::start(k, tiles, (self.operands(stage), &mut |_| ()), (offset, acc), ScaleD::Zero);
        let previous = k.var(stage.index);
        k.range(wgmma::TILE_K, k_len, wgmma::TILE_K, |k_start| {
            let stage = pipeline.wait_full(state);
            let operands = self.operands(stage);
            wgmma::start(k, tiles, (operands, &mut |_| ()), (offset, acc), ScaleD::One);
            k.wgmma_wait_group(1);
            k.when(leader, || pipeline.release(previous.get()));
            previous.set(stage.index);
            let lead = k_start.eq(LEAD * wgmma::TILE_K) & first;
            k.bar_arrive(self.stagger(k), Some(lead));
        });
        k.wgmma_wait_group(0);
        k.bar_arrive(self.stagger(k), Some(k_len.le(LEAD * wgmma::TILE_K) & first));
        staggered.set(1);
        k.when(leader, || pipeline.release(previous.get()));
    }
}

const _: () = assert!(
    TENSOR_MAP_BOX[0] == wgmma::TILE_K && TENSOR_MAP_BOX[1] == CONSUMER_ROWS,
    "a box is a stage along K and the rows of a warpgroup"
);
