//! Forward pass: a block has 128 queries and loops over the tiles of 128 keys and values from the
//! first key of its first query up to the diagonal.
//!
//! Ping-pong scheduling, as in FlashAttention-3: while one warpgroup multiplies, the other computes
//! its softmax. A turn starts the values of one tile and the scores of the next.

use retrograph_kernel_abi::attention::{FlashForwardParameters, WGMMA_ROWS};
use retrograph_ptx::ast::Entry;
use retrograph_ptx::build::{Kernel, NamedBarrier, Pred, Ptr, Value};

use super::smem::{HeadMap, Smem, SmemLayout};
use super::{Config, WARPS, bound_block, multiply, multiply_transposed, warpgroup};
use crate::attention::epilogue::ResultRows;
use crate::attention::mask::{apply_causal_mask, lane_row};
use crate::attention::mma::pack_fragments;
use crate::attention::online_softmax::OnlineSoftmax;
use crate::attention::row_bounds::{Masked, RowBounds};
use crate::primitives::mma::acc_row;
use crate::primitives::output::Output;
use crate::primitives::parameters::Declarations;
use crate::primitives::tma_pipeline::PipelineState;

/// Keys of a tile: as many as queries of a block, so that only the last tile has keys past the
/// diagonal.
const KEYS: u32 = WGMMA_ROWS;

/// The name of the entry.
pub(super) fn name(config: Config) -> &'static str {
    Config::family().forward.entries[config.entry]
}

/// Queries are resident.
pub(super) fn smem_layout(config: Config) -> SmemLayout {
    SmemLayout {
        resident: config.tile(WGMMA_ROWS),
        resident_count: 1,
        streamed: config.tile(KEYS),
        stages: 6,
    }
}

/// The entry.
pub(in crate::attention) fn entry(config: Config) -> Entry {
    Kernel::build(name(config), |k| {
        bound_block(k);
        let params = Params::declare(k);
        k.return_if(params.start.ge(params.out.rows));
        let smem = smem_layout(config).declare(k);
        params.compute((k, config), &smem);
    })
}

/// The parameters, and the position of this block.
#[derive(Clone, Copy)]
struct Params<'k> {
    q: HeadMap<'k>,
    keys: HeadMap<'k>,
    values: HeadMap<'k>,
    out: ResultRows<'k>,
    lse: Ptr<'k, f32>,
    scale: Value<'k, f32>,
    /// The first query of the block.
    start: Value<'k, u32>,
    /// The first and the last tile of keys.
    first: Value<'k, u32>,
    last: Value<'k, u32>,
    /// The first keys of the queries.
    bounds: RowBounds<'k>,
}

impl<'k> Params<'k> {
    fn declare(k: &Kernel<'k>) -> Self {
        let parameters = FlashForwardParameters::declare(&mut Declarations(*k));
        let FlashForwardParameters { out, out_bf16, lse, seq, heads, kv_heads, .. } = parameters;
        let FlashForwardParameters { head_dim, scale, q_map, k_map, v_map, .. } = parameters;
        let FlashForwardParameters { first_keys, .. } = parameters;
        let (sequence, head) = (k.ctaid_x() / heads, k.ctaid_x() % heads);
        let kv_head = head / (heads / kv_heads);
        let head_map = |map, head| HeadMap::new(map, sequence, (head, head_dim));
        let stride = heads * head_dim;
        let first = (sequence * seq).mul_wide(stride) + (head * head_dim).cast::<u64>();
        // Blocks with the most keys start first.
        let last = k.nctaid_y() - 1 - k.ctaid_y();
        let start = last * WGMMA_ROWS;
        let masked = (first_keys, Masked::Below);
        let bounds = RowBounds::new(masked, (sequence, seq), (start, WGMMA_ROWS));
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
            lse: lse.at(k.ctaid_x().mul_wide(seq)),
            scale,
            start,
            first: bounds.first_key(KEYS) / KEYS,
            last,
            bounds,
        }
    }

    /// Copies a tile of keys and one of values.
    fn copy(&self, smem: &Smem<'k>, tile: Value<'k, u32>) {
        smem.copy((self.keys, tile * KEYS));
        smem.copy((self.values, tile * KEYS));
    }

    fn compute(&self, (k, config): (&Kernel<'k>, Config), smem: &Smem<'k>) {
        k.when(smem.copies, || {
            smem.copy_resident(&[self.q], self.start);
            let end = (self.last + 1).min(self.first + smem.pairs());
            k.range(self.first, end, 1, |tile| self.copy(smem, tile));
        });
        let (state, warpgroup) = (PipelineState::new(k), warpgroup(k));
        let (out, scores) = (acc_row(k, config.head_dim), acc_row(k, KEYS));
        let softmax = OnlineSoftmax::new(k, self.scale);
        let ping_pong = PingPong { kernel: *k, warpgroup };

        let [queries] = smem.wait_resident(warpgroup);
        let (stage, keys) = smem.wait(state);
        multiply_transposed(k, [queries, keys], &scores);
        k.wgmma_wait_group(0);
        smem.release(stage.index);
        let mask = |tile: Value<'k, u32>| {
            self.bounds.apply(k, (tile * KEYS, KEYS), (&[&scores], f32::NEG_INFINITY));
        };
        k.range(self.first, self.last, 1, |tile| {
            mask(tile);
            softmax.update(&scores, &out);
            let probs = pack_fragments(config.target, &scores);
            let (values_stage, values) = smem.wait(state);
            let (keys_stage, keys) = smem.wait(state);
            ping_pong.wait(tile.ne(self.first));
            multiply(k, (&probs, values), &out);
            multiply_transposed(k, [queries, keys], &scores);
            ping_pong.pass((tile + 1).ne(self.last));
            k.wgmma_wait_group(1);
            smem.release(values_stage.index);
            k.wgmma_wait_group(0);
            smem.release(keys_stage.index);
            let next = tile + smem.pairs();
            k.when(smem.copies & next.le(self.last), || self.copy(smem, next));
        });
        apply_causal_mask(k, ([self.start; 2], true), &scores, f32::NEG_INFINITY);
        mask(self.last);
        softmax.update(&scores, &out);
        let probs = pack_fragments(config.target, &scores);
        let (_, values) = smem.wait(state);
        multiply(k, (&probs, values), &out);
        k.wgmma_wait_group(0);
        softmax.finish(&out, |half, lse| {
            let token = self.start + lane_row(k) + half as u32 * 8;
            let writes = token.lt(self.out.rows) & (k.lane() & 3).eq(0);
            k.when(writes, || {
                let lse = lse();
                self.lse.store(token, lse);
            });
        });
        self.out.write_pairs(config.target, (self.start, None), &out);
    }
}

/// The alternation of the two warpgroups. The first one begins.
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
