//! Forward pass, of whole sequences or of new tokens over a KV cache: a tile of 128 queries loops
//! over the tiles of 128 keys and values from the first key of its first query to the diagonal.
//! Tiles of heads of more than 128 elements have 64 keys, and two of them cross the diagonal.
//!
//! Scheduling in bf16, as in FlashAttention-3: the scores of a tile are computed before the product
//! of the previous tile with its values, so that the softmax overlaps this product. The warpgroups
//! take turns (ping-pong), so that one multiplies while the other computes its softmax.

mod split;

use retrograph_kernel_abi::attention::{
    FlashForwardParameters, FlashPrefillParameters, WGMMA_ROWS,
};
use retrograph_ptx::ast::Entry;
use retrograph_ptx::build::{Kernel, NamedBarrier, Pred, Ptr, Value};

use super::smem::{HeadMap, PlacedTile, Smem, SmemLayout};
use super::split::RowScales;
use super::tile_scheduler::{Tile, TileScheduler, TileWork};
use super::{Config, Operands, WARPS, bound_block, multiply, multiply_transposed, warpgroup};
use crate::attention::config::Pass;
use crate::attention::epilogue::ResultRows;
use crate::attention::mask::{apply_causal_mask, lane_row};
use crate::attention::mma::pack_fragments;
use crate::attention::online_softmax::{OnlineSoftmax, rescale};
use crate::attention::row_bounds::{Masked, RowBounds};
use crate::attention::score_scale::ScoreScale;
use crate::primitives::mma::{AccFragment, LANE_ROWS, acc_row};
use crate::primitives::output::Output;
use crate::primitives::parameters::Declarations;
use crate::primitives::registers::{registers, set, values};
use crate::primitives::tma_pipeline::Producer;
use crate::primitives::wgmma::STEPS;

/// Keys of a tile of bf16, and the number of stages. With as many keys as a block has queries, only
/// the last tile crosses the diagonal. Wider heads leave registers and shared memory for 64.
fn keys_and_stages(config: Config) -> (u32, u32) {
    if config.is_wide() { (WGMMA_ROWS / 2, 4) } else { (WGMMA_ROWS, 6) }
}

/// The name of the entry.
pub(super) fn name(config: Config, pass: Pass) -> &'static str {
    pass.signature(config.family()).entries[config.entry]
}

/// Queries are resident.
pub(super) fn smem_layout(config: Config) -> SmemLayout {
    let (keys, stages) = match config.operands {
        Operands::Bf16 => keys_and_stages(config),
        Operands::Split => (split::KEYS, split::STAGES),
    };
    SmemLayout {
        terms: config.operands.terms(),
        resident: config.tile(WGMMA_ROWS),
        resident_count: 1,
        streamed: config.tile(keys),
        stages,
        producer: Producer::Warp,
    }
}

/// The entry.
pub(in crate::attention) fn entry(config: Config, pass: Pass) -> Entry {
    Kernel::build(name(config, pass), |k| {
        bound_block(k);
        let params = Params::declare(k, pass);
        let declare = || vec![smem_layout(config).declare(k)];
        params.scheduler(k, config).run(config, declare, |tile| params.work(k, config, tile));
    })
}

/// The parameters.
enum Params<'k> {
    Sequences(FlashForwardParameters<Declarations<'k>>),
    Prefill {
        parameters: FlashPrefillParameters<Declarations<'k>>,
        /// The position of the first query.
        first: Value<'k, u32>,
        /// The end of the queries that are positions of the cache.
        end: Value<'k, u32>,
    },
}

impl<'k> Params<'k> {
    fn declare(k: &Kernel<'k>, pass: Pass) -> Self {
        match pass {
            Pass::Sequences => {
                Self::Sequences(FlashForwardParameters::declare(&mut Declarations(*k)))
            }
            Pass::Prefill => {
                let parameters = FlashPrefillParameters::declare(&mut Declarations(*k));
                let FlashPrefillParameters { start, queries, positions, .. } = parameters;
                let first = start.load(0).min(positions);
                Self::Prefill { parameters, first, end: (first + queries).min(positions) }
            }
        }
    }

    /// The scheduler of the tiles of 128 queries.
    fn scheduler(&self, k: &Kernel<'k>, config: Config) -> TileScheduler<'k> {
        let (heads, sequences, end, first) = match self {
            Self::Sequences(FlashForwardParameters { batch, seq, heads, .. }) => {
                (*heads, *batch, *seq, k.constant(0))
            }
            Self::Prefill { parameters, first, end } => {
                (parameters.heads, k.constant(1), *end, *first)
            }
        };
        let tiles = (end - aligned(first) + (WGMMA_ROWS - 1)) / WGMMA_ROWS;
        let tiles = end.gt(first).select(tiles, 0);
        TileScheduler {
            kernel: *k,
            heads,
            sequences,
            tiles,
            is_persistent: config.family().has_persistent_queries(),
        }
    }

    fn work(&self, k: &Kernel<'k>, config: Config, tile: Tile<'k>) -> Work<'k> {
        match self {
            Self::Sequences(parameters) => Work::of_sequence(config, parameters, tile),
            Self::Prefill { parameters, first, .. } => {
                Work::of_prefill(k, config, parameters, *first, tile)
            }
        }
    }
}

/// The last position up to `position` at which a tile starts.
fn aligned<'k>(position: Value<'k, u32>) -> Value<'k, u32> {
    position & !(WGMMA_ROWS - 1)
}

/// The operands and results of a tile of queries.
#[derive(Clone, Copy)]
struct Work<'k> {
    q: HeadMap<'k>,
    keys: HeadMap<'k>,
    values: HeadMap<'k>,
    out: ResultRows<'k>,
    lse: Option<Ptr<'k, f32>>,
    /// The scales of split q, keys and values; `None` for bf16.
    scales: Option<[RowScales<'k>; 3]>,
    scale: ScoreScale<'k>,
    /// The first row of q of the tile. In prefill, the rows of the first tile may start before 0.
    row: Value<'k, u32>,
    /// The position of its query, a multiple of the rows of a tile.
    start: Value<'k, u32>,
    /// The first keys of the queries.
    bounds: RowBounds<'k>,
}

impl<'k> Work<'k> {
    fn of_sequence(
        config: Config,
        parameters: &FlashForwardParameters<Declarations<'k>>,
        tile: Tile<'k>,
    ) -> Self {
        let FlashForwardParameters { out, out_bf16, lse, seq, heads, kv_heads, .. } = *parameters;
        let FlashForwardParameters { head_dim, scale, softcap, q_map, k_map, .. } = *parameters;
        let FlashForwardParameters { v_map, first_keys, q_scales, k_scales, .. } = *parameters;
        let FlashForwardParameters { v_scales, batch, .. } = *parameters;
        let Tile { sequence, head, .. } = tile;
        let kv_head = head / (heads / kv_heads);
        let planes = [sequence, batch];
        let head_map = |map, head| HeadMap::new(map, config.operands, planes, head, head_dim);
        let stride = heads * head_dim;
        let first = (sequence * seq).mul_wide(stride) + (head * head_dim).cast::<u64>();
        let start = tile.index * WGMMA_ROWS;
        let bounds = RowBounds::new(first_keys, Masked::Below, sequence, seq, start, WGMMA_ROWS);
        Self {
            q: head_map(q_map, head),
            keys: head_map(k_map, kv_head),
            values: head_map(v_map, kv_head),
            out: ResultRows {
                first: Output::new(out, out_bf16).at(first),
                stride,
                rows: seq,
                rotation: None,
            },
            lse: Some(lse.at((sequence * heads + head).mul_wide(seq))),
            scales: (config.operands == Operands::Split).then(|| {
                [q_scales, k_scales, v_scales].map(|scales| RowScales::new(scales, [sequence, seq]))
            }),
            scale: ScoreScale::new(config.capped, scale, softcap),
            row: start,
            start,
            bounds,
        }
    }

    /// A tile of new tokens from position `first` on.
    fn of_prefill(
        k: &Kernel<'k>,
        config: Config,
        parameters: &FlashPrefillParameters<Declarations<'k>>,
        first: Value<'k, u32>,
        tile: Tile<'k>,
    ) -> Self {
        let FlashPrefillParameters { out, out_bf16, queries, window, heads, .. } = *parameters;
        let FlashPrefillParameters { kv_heads, head_dim, scale, softcap, .. } = *parameters;
        let FlashPrefillParameters { q_map, k_map, v_map, .. } = *parameters;
        let head = tile.head;
        let kv_head = head / (heads / kv_heads);
        let planes = [k.constant(0), k.constant(1)];
        let head_map = |map, head| HeadMap::new(map, config.operands, planes, head, head_dim);
        // Tiles start at multiples of the keys of a tile, so that only the last tile crosses the
        // diagonal.
        let start = aligned(first) + tile.index * WGMMA_ROWS;
        Self {
            q: head_map(q_map, head),
            keys: head_map(k_map, kv_head),
            values: head_map(v_map, kv_head),
            out: ResultRows {
                first: Output::new(out, out_bf16).at((head * head_dim).cast::<u64>()),
                stride: heads * head_dim,
                rows: queries,
                rotation: None,
            },
            lse: None,
            scales: None,
            scale: ScoreScale::new(config.capped, scale, softcap),
            row: start - first,
            start,
            bounds: RowBounds::window(window, start, WGMMA_ROWS),
        }
    }

    /// Copies tiles of keys and values from `key` on.
    fn copy(&self, smem: &Smem<'k>, key: Value<'k, u32>) {
        smem.copy(self.keys, key);
        smem.copy(self.values, key);
    }

    /// The first tile of keys, and the last one.
    fn tiles(&self, keys: u32) -> [Value<'k, u32>; 2] {
        [self.bounds.first_key(keys) / keys, (self.start + WGMMA_ROWS) / keys - 1]
    }

    /// In the order of the products: keys are a tile ahead. One stage stays free, because it may
    /// still hold the last values of the tile before.
    fn prefetch_bf16(&self, k: &Kernel<'k>, config: Config, smem: &Smem<'k>) {
        let (keys_of_tile, _) = keys_and_stages(config);
        let [first, last] = self.tiles(keys_of_tile);
        smem.copy(self.keys, first * keys_of_tile);
        for tile in (1..smem.pairs()).map(|pair| first + pair) {
            k.when(tile.le(last), || smem.copy(self.keys, tile * keys_of_tile));
            let tile = tile - 1;
            k.when(tile.le(last), || smem.copy(self.values, tile * keys_of_tile));
        }
    }

    fn compute_bf16(
        &self,
        k: &Kernel<'k>,
        config: Config,
        smem: &Smem<'k>,
        [queries]: [PlacedTile<'k>; 1],
        next: impl FnOnce(),
    ) {
        let (keys_of_tile, _) = keys_and_stages(config);
        let [first, last] = self.tiles(keys_of_tile);
        // The tiles from `diagonal` to the last one cross the diagonal.
        let diagonal = self.start / keys_of_tile;
        let copy = |source: HeadMap<'k>, tile: Value<'k, u32>| {
            k.when(smem.copies & tile.le(last), || smem.copy(source, tile * keys_of_tile));
        };
        let pairs = smem.pairs();
        copy(self.keys, first + pairs);
        let (out, scores) = (acc_row(k, config.head_dim), acc_row(k, keys_of_tile));
        let softmax = OnlineSoftmax::new(k, self.scale.factor);
        let ping_pong = PingPong { kernel: *k, warpgroup: warpgroup(k) };

        let (stage, keys) = smem.wait();
        multiply_transposed(k, config.operands, [queries, keys], &scores);
        k.wgmma_wait_group(0);
        smem.release(stage.index);
        copy(self.values, first + (pairs - 1));
        let cap_and_mask = |tile: Value<'k, u32>| {
            self.scale.apply_tanh(&scores);
            k.when(tile.ge(diagonal), || {
                let starts = [self.start, tile * keys_of_tile];
                apply_causal_mask(k, starts, true, &scores, f32::NEG_INFINITY);
            });
            let first_key = tile * keys_of_tile;
            self.bounds.apply(k, first_key, keys_of_tile, &[&scores], f32::NEG_INFINITY);
        };
        cap_and_mask(first);
        softmax.exponentials(&scores);
        let probs: Vec<_> = (0..keys_of_tile / STEPS).map(|_| registers(k, 0u32)).collect();
        let pack_probs = || {
            let packed = pack_fragments(config.target, &scores);
            probs.iter().zip(packed).for_each(|(probs, packed)| set(probs, packed));
        };
        let multiply_values = |tile| {
            multiply(k, &probs.iter().map(values).collect(), tile, &out);
        };
        pack_probs();
        k.range(first, last, 1, |tile| {
            let (keys_stage, keys) = smem.wait();
            let (values_stage, values) = smem.wait();
            ping_pong.wait(tile.ne(first));
            multiply_transposed(k, config.operands, [queries, keys], &scores);
            multiply_values(values);
            ping_pong.pass((tile + 1).ne(last));
            k.wgmma_wait_group(1);
            smem.release(keys_stage.index);
            cap_and_mask(tile + 1);
            let factors = softmax.exponentials(&scores);
            // The branch keeps ptxas from moving the wait before the exponentials.
            copy(self.keys, tile + (pairs + 1));
            k.wgmma_wait_group(0);
            smem.release(values_stage.index);
            rescale(&out, factors);
            pack_probs();
            copy(self.values, tile + pairs);
        });
        let (values_stage, values) = smem.wait();
        multiply_values(values);
        next();
        k.wgmma_wait_group(0);
        smem.release(values_stage.index);
        self.finish(k, config, &softmax, &out);
    }

    /// Writes the results.
    fn finish(
        &self,
        k: &Kernel<'k>,
        config: Config,
        softmax: &OnlineSoftmax<'k>,
        out: &[AccFragment<'k>],
    ) {
        softmax.finish(out, |index, lse| {
            let Some(to) = self.lse else { return };
            let token = self.row + lane_row(k) + LANE_ROWS[index];
            let writes = token.lt(self.out.rows) & (k.lane() & 3).eq(0);
            k.when(writes, || {
                let lse = lse();
                to.store(token, lse);
            });
        });
        self.out.write_pairs(config.target, self.row, None, out);
    }
}

impl<'k> TileWork<'k> for Work<'k> {
    fn prefetch(&self, k: &Kernel<'k>, config: Config, smem: &[Smem<'k>]) {
        let smem = &smem[0];
        smem.copy_resident(&[self.q], self.row);
        match config.operands {
            Operands::Bf16 => self.prefetch_bf16(k, config, smem),
            Operands::Split => self.prefetch_split(k, smem),
        }
    }

    fn compute(
        &self,
        k: &Kernel<'k>,
        config: Config,
        smem: &[Smem<'k>],
        parity: Value<'k, u32>,
        next: impl FnOnce(),
    ) {
        let smem = &smem[0];
        let queries = smem.wait_resident(parity, warpgroup(k));
        match config.operands {
            Operands::Bf16 => self.compute_bf16(k, config, smem, queries, next),
            Operands::Split => self.compute_split(k, config, smem, queries),
        }
    }
}

/// The turns of the two warpgroups. The first one begins.
struct PingPong<'k> {
    kernel: Kernel<'k>,
    warpgroup: Value<'k, u32>,
}

impl<'k> PingPong<'k> {
    /// Waits for the turn of this warpgroup. `later` is false in the first turn of all, which needs
    /// no wait.
    fn wait(&self, later: Pred<'k>) {
        let (k, first) = (&self.kernel, self.warpgroup.eq(0));
        k.bar_sync(self.barrier(0), Some(first & later));
        k.bar_sync(self.barrier(1), Some(!first));
    }

    /// Passes the turn to the other warpgroup. `more` is false in the last turn of all, after which
    /// no warpgroup waits.
    fn pass(&self, more: Pred<'k>) {
        let (k, first) = (&self.kernel, self.warpgroup.eq(0));
        k.bar_arrive(self.barrier(1), Some(first));
        k.bar_arrive(self.barrier(0), Some(!first & more));
    }

    /// The barrier at which a warpgroup waits for its turn. Barrier 0 is the barrier of the block.
    fn barrier(&self, warpgroup: u32) -> NamedBarrier<'k> {
        NamedBarrier { id: self.kernel.constant(warpgroup + 1), threads: WARPS * 32 }
    }
}
