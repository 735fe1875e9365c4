//! A consumer warpgroup.

use retrograph_kernel_abi::gemm::{CONSUMER_ROWS, TENSOR_MAP_BOX, TENSOR_MAP_BOX_F32};
use retrograph_ptx::build::{Kernel, ScaleD, Shared, Value, Var};

use super::cluster_split_k::contraction;
use super::{Tile, WarpSpecializedKernel};
use crate::gemm::accumulator::{AccFragment, acc_row};
use crate::gemm::bulk_store::{BUFFER_WORDS, BulkStore};
use crate::gemm::epilogue::Epilogue;
use crate::gemm::mainloop::{wgmma, wgmma_split_f16};
use crate::gemm::params::{EpilogueParams, GemmParams, SplitParams};
use crate::gemm::squares::TileWarps;
use crate::gemm::staged_store::StagedStore;
use crate::primitives::mma::{fragment_column, fragment_row};
use crate::primitives::registers::set;
use crate::primitives::tma_pipeline::{PipelineState, TmaPipeline};
use crate::primitives::wgmma::{SPLIT_PRODUCTS, SPLIT_PRODUCTS_WITH_HIGH_B, WARPGROUP_THREADS};

/// Stages by which the first consumer warpgroup is ahead of the others, so that tensor cores stay
/// busy while one warpgroup writes a tile.
const LEAD: u32 = 2;

/// The state of a consumer warpgroup.
struct Consumer<'k> {
    pipeline: TmaPipeline<'k>,
    state: PipelineState<'k>,
    warpgroup: Value<'k, u32>,
    /// Whether the first warpgroup is ahead of the others: 0 or 1.
    staggered: Var<'k, u32>,
}

impl WarpSpecializedKernel {
    /// Multiplies and writes the rows of this warpgroup in every tile of the block.
    pub(super) fn consume<'k>(
        self,
        pipeline: &TmaPipeline<'k>,
        params: &GemmParams<'k>,
        warp: Value<'k, u32>,
        stores: Shared<'k, u32>,
    ) {
        let k = &params.m.kernel();
        let state = PipelineState::new(k);
        let warpgroup = warp >> 2;
        let acc = acc_row(k, self.columns());
        if let Some(split) = params.split {
            return self.consume_split(pipeline, params, split, warp, stores);
        }
        let staggered = k.var(0u32);
        let consumer = Consumer { pipeline: *pipeline, state, warpgroup, staggered };
        let multiply =
            |tile: &Tile<'k>, after_first: &dyn Fn()| match self.share_of_k(&tile.product) {
                None => self.multiply(&consumer, contraction(&tile.product), &acc, after_first),
                Some(share) => {
                    k.when_else(
                        share.length().gt(0),
                        || self.multiply(&consumer, share.length(), &acc, after_first),
                        || acc.as_flattened().iter().for_each(|acc| acc.set(0.0)),
                    );
                    self.add_shares(pipeline, &acc);
                }
            };
        let rows = |tile: &Tile<'k>| {
            let [row, column] = tile.origin;
            [row + warpgroup * CONSUMER_ROWS, column]
        };
        if let EpilogueParams::Linear | EpilogueParams::QkvRope(_) = params.epilogue {
            let store = self.bulk_store(k, warpgroup, stores);
            let sums =
                params.squares.map(|_| k.shared("square_sums", self.warpgroups() as usize * 4));
            self.for_each_tile(k, params, |tile| {
                multiply(&tile, &|| ());
                self.in_leader(k, || {
                    if let Some((squares, sums)) = params.squares.zip(sums) {
                        let (origin, shape) = (rows(&tile), [CONSUMER_ROWS, self.columns()]);
                        let (warp, thread) = (warp & 3, k.tid_x() & (WARPGROUP_THREADS - 1));
                        let warps =
                            TileWarps { count: 4, warp, thread, sums: sums.at(warpgroup * 4) };
                        squares.write(&tile.product, origin, shape, warps, &acc, || {
                            store.synchronize();
                        });
                    }
                    self.write(&tile.product, &store, rows(&tile), &acc);
                });
            });
            return store.wait();
        }
        assert_eq!(self.cluster.k, 1, "every block writes its results to stages");
        let store = StagedStore::new(k, pipeline, state, warpgroup);
        let boxes = |stage| self.boxes(stage, warpgroup);
        self.for_each_tile(k, params, |tile| {
            multiply(&tile, &|| store.release_last());
            let (target, origin) = (self.target, rows(&tile));
            match params.epilogue {
                EpilogueParams::Glu(glu) => {
                    glu.store(&store, boxes, target, params, origin, &acc);
                }
                EpilogueParams::GluBackward(glu) => {
                    glu.store(&store, boxes, target, params, origin, &acc);
                }
                EpilogueParams::Linear | EpilogueParams::QkvRope(_) => {
                    unreachable!("handled above")
                }
            }
        });
        store.wait();
    }

    fn bulk_store<'k>(
        self,
        k: &Kernel<'k>,
        warpgroup: Value<'k, u32>,
        stores: Shared<'k, u32>,
    ) -> BulkStore<'k> {
        let count = self.store_buffers();
        let first = stores.at(warpgroup * (count * BUFFER_WORDS));
        BulkStore::new(k, self.target, warpgroup, first, count == 2)
    }

    /// [`Self::consume`] for split operands.
    fn consume_split<'k>(
        self,
        pipeline: &TmaPipeline<'k>,
        params: &GemmParams<'k>,
        split: SplitParams<'k>,
        warp: Value<'k, u32>,
        stores: Shared<'k, u32>,
    ) {
        let k = &params.m.kernel();
        let (state, warpgroup) = (PipelineState::new(k), warp >> 2);
        let [acc, sum] = [(); 2].map(|()| acc_row(k, self.columns()));
        let store = self.bulk_store(k, warpgroup, stores);
        let (offset, leader) = (warpgroup * wgmma::warpgroup_words(CONSUMER_ROWS), k.lane().eq(0));
        let multiply = |products| {
            k.range(0, params.k, wgmma::TILE_K, |_| {
                let stage = pipeline.wait_full(state);
                let terms = self.split_operands(stage);
                wgmma_split_f16::start(k, self.tiles(), products, terms, offset, &sum);
                k.wgmma_wait_group(0);
                k.when(leader, || pipeline.release(stage.index));
                for (acc, sum) in acc.as_flattened().iter().zip(sum.as_flattened()) {
                    acc.add_assign(sum.get());
                }
            });
        };
        self.for_each_tile(k, params, |tile| {
            acc.as_flattened().iter().for_each(|acc| acc.set(0.0));
            k.when_else(
                split.b_has_lo,
                || multiply(SPLIT_PRODUCTS),
                || multiply(SPLIT_PRODUCTS_WITH_HIGH_B),
            );
            let [row, column] = tile.origin;
            let rows = [row + warpgroup * CONSUMER_ROWS, column];
            unsplit(k, params, warp, rows, &acc);
            self.write(params, &store, rows, &acc);
        });
        store.wait();
    }

    /// Writes this warpgroup's rows of a tile of c, whose first row and column are `rows`.
    fn write<'k>(
        self,
        params: &GemmParams<'k>,
        store: &BulkStore<'k>,
        rows: [Value<'k, u32>; 2],
        acc: &[AccFragment<'k>],
    ) {
        let k = &params.m.kernel();
        let maps = params.maps.expect("operands have maps");
        if let EpilogueParams::QkvRope(qkv) = params.epilogue {
            let [row, column] = rows;
            let first = row + (k.warp() & 3) * 16 + fragment_row(k);
            qkv.apply(params, [first, column], acc);
            return store.write_bf16(maps.c, k.constant(0), rows, acc);
        }
        scale(params, rows[1], acc);
        let by_threads = |acc: &[AccFragment<'k>], first: u32| {
            let ([row, column], bf16_target) = (rows, Some(self.target));
            let origin = [row, column + first];
            let epilogue = Epilogue { kernel: *k, bf16_target, params: *params, origin };
            let write = |row, column, values: [_; 4]| epilogue.write_scaled(row, column, &values);
            store.write_by_threads(acc, write);
        };
        // Columns that do not fill a whole box are written by threads.
        let in_boxes = |width: u32, write: &dyn Fn(&[AccFragment<'k>])| {
            let columns = self.columns() / width * width;
            let (boxes, rest) = acc.split_at(columns as usize / 8);
            write(boxes);
            if !rest.is_empty() {
                by_threads(rest, columns);
            }
        };
        let (c, plane) = (maps.c, k.ctaid_z());
        let f32 = || in_boxes(TENSOR_MAP_BOX_F32[0], &|acc| store.write_f32(c, plane, rows, acc));
        let bf16 = || in_boxes(TENSOR_MAP_BOX[0], &|acc| store.write_bf16(c, plane, rows, acc));
        let through_smem = || match params.c.bf16 {
            None => f32(),
            Some((_, is_bf16)) => k.when_else(is_bf16, bf16, f32),
        };
        k.when_else(maps.writes_c, through_smem, || by_threads(acc, 0));
    }

    /// Adds the products of all stages of a tile to `acc`. Calls `after_first` when the products of
    /// the first stage have started.
    fn multiply<'k>(
        self,
        &Consumer { pipeline, state, warpgroup, staggered }: &Consumer<'k>,
        k_len: Value<'k, u32>,
        acc: &Vec<AccFragment<'k>>,
        after_first: &dyn Fn(),
    ) {
        let k = &k_len.kernel();
        let offset = warpgroup * wgmma::warpgroup_words(CONSUMER_ROWS);
        let acc = std::slice::from_ref(acc);
        let leader = k.lane().eq(0);
        let first = staggered.get().eq(0);
        k.bar_sync(self.stagger(k), Some(first & warpgroup.ne(0)));
        let first = first & warpgroup.eq(0);
        let tiles = self.tiles();
        // Accumulating the first stage from zero ends the live range of the previous accumulators.
        let stage = pipeline.wait_full(state);
        wgmma::start(tiles, self.operands(stage), offset, acc, ScaleD::Zero, &mut |_| ());
        after_first();
        let previous = k.var(stage.index);
        k.range(wgmma::TILE_K, k_len, wgmma::TILE_K, |k_start| {
            let stage = pipeline.wait_full(state);
            let operands = self.operands(stage);
            wgmma::start(tiles, operands, offset, acc, ScaleD::One, &mut |_| ());
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

/// Multiplies the accumulators of a warpgroup by alpha and adds the bias. `column` is their first
/// column.
fn scale<'k>(params: &GemmParams<'k>, column: Value<'k, u32>, acc: &[AccFragment<'k>]) {
    let (k, c) = (column.kernel(), params.c);
    acc.as_flattened().iter().for_each(|acc| acc.set(acc.get() * c.alpha));
    k.when(!c.bias.is_null(), || {
        // Columns past the end are not written, so their bias does not matter.
        let (first, last) = (column + fragment_column(&k), params.n - 1);
        for (j, [a, b, x, y]) in (0u32..).zip(acc) {
            let [low, high] = [0, 1].map(|next| c.bias.load((first + (j * 8 + next)).min(last)));
            for (acc, bias) in [(a, low), (b, high), (x, low), (y, high)] {
                acc.add_assign(bias);
            }
        }
    });
}

/// Multiplies the accumulators of a warpgroup by the scales of split operands. Their first row and
/// column are `row` and `column`.
fn unsplit<'k>(
    k: &Kernel<'k>,
    params: &GemmParams<'k>,
    warp: Value<'k, u32>,
    [row, column]: [Value<'k, u32>; 2],
    acc: &[AccFragment<'k>],
) {
    let row = row + (warp & 3) * 16 + fragment_row(k);
    let column = column + fragment_column(k);
    for (j, fragment) in (0u32..).zip(acc) {
        for (rows, pair) in (0u32..).step_by(8).zip(fragment.chunks_exact(2)) {
            let sums = [pair[0], pair[1]].map(Var::get);
            set(pair, params.unsplit([row + rows, column + j * 8], sums));
        }
    }
}
