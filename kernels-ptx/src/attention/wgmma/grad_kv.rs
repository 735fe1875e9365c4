//! The gradients of k and v: a block has 128 keys of a key head (64 in [`wide`] heads) and loops
//! over the tiles of 64 queries from the diagonal to the end of the queries of its last key, for
//! each head of its split of the group.
//!
//! Scores are computed with keys as rows, so that probabilities and score gradients are in the
//! right registers for the next product.

mod split;
mod wide;

use retrograph_kernel_abi::attention::{FlashAttention, FlashBackwardParameters};
use retrograph_ptx::ast::Entry;
use retrograph_ptx::build::{Kernel, Ptr, Value, Var};

use super::smem::{HeadMap, PlacedTile, Smem, SmemLayout};
use super::split::RowScales;
use super::{Config, Operands, bound_block, multiply, multiply_transposed, warpgroup};
use crate::attention::backward::padded_rows;
use crate::attention::epilogue::ResultRows;
use crate::attention::mask::apply_causal_mask;
use crate::attention::mma::pack_fragments;
use crate::attention::row_bounds::{Masked, RowBounds};
use crate::attention::score_scale::{ScoreScale, prob};
use crate::primitives::mma::{AccFragment, acc_row, fragment_column};
use crate::primitives::output::Output;
use crate::primitives::parameters::Declarations;
use crate::primitives::tma_pipeline::{Producer, Stage};
use crate::primitives::wgmma::ROWS;

/// Queries of a tile.
const QUERIES: u32 = 64;

/// The name of the entry.
pub(super) fn name(config: Config) -> &'static str {
    config.family().grad_kv.entries[config.entry]
}

/// Keys and values are resident.
pub(super) fn smem_layout(config: Config) -> SmemLayout {
    let (queries, stages) = match config.operands {
        Operands::Bf16 if config.is_wide() => (QUERIES, wide::STAGES),
        Operands::Bf16 => (QUERIES, 8),
        Operands::Split => (split::QUERIES, split::STAGES),
    };
    // Whichever was faster: split operands need all registers, and blocks of small heads are short.
    let producer = match config.operands {
        Operands::Bf16 if config.head_dim >= 128 => Producer::Warp,
        Operands::Bf16 | Operands::Split => Producer::Thread,
    };
    SmemLayout {
        terms: config.operands.terms(),
        resident: config.tile(keys(config)),
        resident_count: 2,
        streamed: config.tile(queries),
        stages,
        producer,
    }
}

/// The entry.
pub(in crate::attention) fn entry(config: Config) -> Entry {
    Kernel::build(name(config), |k| {
        bound_block(k);
        let params = Params::declare(k, config);
        k.return_if(params.start.ge(params.seq));
        let smem = smem_layout(config).declare(k);
        match config.operands {
            Operands::Bf16 if config.is_wide() => params.compute_wide(k, config, &smem),
            Operands::Bf16 => params.compute(k, config, &smem),
            Operands::Split => params.compute_split(k, config, &smem),
        }
    })
}

/// Keys of a block.
fn keys(config: Config) -> u32 {
    FlashAttention::wgmma_keys(config.head_dim)
}

/// The parameters, and the position of this block.
#[derive(Clone, Copy)]
struct Params<'k> {
    /// Queries and gradients of the output in the first head.
    q: HeadMap<'k>,
    grad_out: HeadMap<'k>,
    keys: HeadMap<'k>,
    values: HeadMap<'k>,
    /// Log-sum-exp and delta of each query in the first head.
    lse_delta: Ptr<'k, f32>,
    /// Rows of `lse_delta` per head.
    padded: Value<'k, u32>,
    grad_k: ResultRows<'k>,
    grad_v: ResultRows<'k>,
    /// The scales of split q, keys, values and gradients of the output.
    scales: [RowScales<'k>; 4],
    head_dim: Value<'k, u32>,
    scale: Value<'k, f32>,
    score_scale: ScoreScale<'k>,
    /// The first key of the block.
    start: Value<'k, u32>,
    /// Keys of the block.
    keys_of_block: u32,
    /// The key of row 0 of the first warp.
    lane_start: Value<'k, u32>,
    /// Tokens of the sequence.
    seq: Value<'k, u32>,
    /// The end of the queries.
    end: Value<'k, u32>,
    /// The ends of the queries of keys.
    bounds: RowBounds<'k>,
    /// Heads to loop over.
    heads: Value<'k, u32>,
}

impl<'k> Params<'k> {
    fn declare(k: &Kernel<'k>, config: Config) -> Self {
        let parameters = FlashBackwardParameters::declare(&mut Declarations(*k));
        let FlashBackwardParameters { lse_delta, grads, grads_bf16, batch, seq, .. } = parameters;
        let FlashBackwardParameters { heads, kv_heads, head_dim, splits, scale, .. } = parameters;
        let FlashBackwardParameters { q_map, k_map, v_map, grad_out_map, row_bounds, .. } =
            parameters;
        let FlashBackwardParameters { softcap, .. } = parameters;
        let FlashBackwardParameters { q_scales, k_scales, v_scales, grad_out_scales, .. } =
            parameters;
        let (split, plane) = (k.ctaid_x() % splits, k.ctaid_x() / splits);
        let (sequence, kv_head) = (plane / kv_heads, plane % kv_heads);
        let group = heads / kv_heads;
        let heads_per_split = group / splits;
        let head = kv_head * group + split * heads_per_split;
        let head_map =
            |map, head| HeadMap::new(map, config.operands, [sequence, batch], head, head_dim);
        let padded = padded_rows(seq);
        let stride = kv_heads * head_dim;
        // The gradients of k and v are [split, 2, batch, seq, kv_heads, head_dim].
        let grads = Output::new(grads, grads_bf16);
        let rotation = config.rotation(&parameters, sequence);
        let result = |index: u32, rotation| {
            let row = (split * 2 + index) * (batch * seq) + sequence * seq;
            let first = row.mul_wide(stride) + (kv_head * head_dim).cast::<u64>();
            ResultRows { first: grads.at(first), stride, rows: seq, rotation }
        };
        // Blocks with the most queries start first.
        let keys_of_block = keys(config);
        let start = k.ctaid_y() * keys_of_block;
        let bounds = RowBounds::new(row_bounds, Masked::From, sequence, seq, start, keys_of_block);
        // Both warpgroups have all keys of a block of 64.
        let lane_start = if config.is_wide() { start - warpgroup(k) * ROWS } else { start };
        Self {
            q: head_map(q_map, head),
            grad_out: head_map(grad_out_map, head),
            keys: head_map(k_map, kv_head),
            values: head_map(v_map, kv_head),
            lse_delta: lse_delta.at((sequence * heads + head).mul_wide(padded) << 1),
            padded,
            grad_k: result(0, rotation),
            grad_v: result(1, None),
            scales: [q_scales, k_scales, v_scales, grad_out_scales]
                .map(|scales| RowScales::new(scales, [sequence, seq])),
            head_dim,
            scale,
            score_scale: ScoreScale::new(config.capped, scale, softcap),
            start,
            keys_of_block,
            lane_start,
            seq,
            end: bounds.query_end(),
            bounds: bounds.with_lane_start(lane_start),
            heads: heads_per_split,
        }
    }

    /// Copies the tile of `queries` queries at `position`, and advances it to the next one.
    fn copy(&self, smem: &Smem<'k>, queries: u32, position: &Position<'k>) {
        let (head, query) = (position.head.get(), position.query.get());
        let in_head = |first: HeadMap<'k>| HeadMap {
            column: head.mad_lo(self.head_dim, first.column),
            ..first
        };
        smem.copy(in_head(self.q), query);
        smem.copy(in_head(self.grad_out), query);
        let next = query + queries;
        let wraps = next.ge(self.end);
        position.query.set(wraps.select(self.start, next));
        position.head.update(|head| wraps.select(head + 1, head));
    }

    /// Copies the resident tiles, and the first tiles of `queries` queries. Returns the position of
    /// the next one.
    fn copy_first(&self, smem: &Smem<'k>, queries: u32) -> Position<'k> {
        let k = &self.start.kernel();
        let position = Position { head: k.var(0u32), query: k.var(self.start) };
        k.when(smem.copies, || {
            smem.copy_resident(&[self.keys, self.values], self.start);
            k.range(0, smem.pairs(), 1, |_| self.copy_next(smem, queries, &position));
        });
        position
    }

    /// Calls `body` with the first query of each tile of `queries` queries, and log-sum-exp and
    /// delta of the queries of its head.
    fn for_each_tile(
        &self,
        k: &Kernel<'k>,
        queries: u32,
        body: impl Fn(Value<'k, u32>, Ptr<'k, f32>),
    ) {
        k.range(0, self.heads, 1, |head| {
            let lse_delta = self.lse_delta.at(head.mul_wide(self.padded) << 1);
            k.range(self.start, self.end, queries, |query| body(query, lse_delta));
        });
    }

    /// Sets probabilities and score gradients of `queries` queries from `query` on to 0 where they
    /// are masked. After p and ds, so that a non-finite query doesn't spoil later keys.
    fn mask(&self, query: Value<'k, u32>, queries: u32, accs: &[&[AccFragment<'k>]]) {
        let k = &query.kernel();
        k.when(query.lt(self.start + (self.keys_of_block - 1)), || {
            for acc in accs {
                apply_causal_mask(k, [self.lane_start, query], false, acc, 0.0);
            }
        });
        self.bounds.apply(k, query, queries, accs, 0.0);
    }

    /// Copies the tile of `queries` queries at `position`, if there is one.
    fn copy_next(&self, smem: &Smem<'k>, queries: u32, position: &Position<'k>) {
        let more = position.head.get().lt(self.heads);
        self.start.kernel().when(more, || self.copy(smem, queries, position));
    }

    fn compute(&self, k: &Kernel<'k>, config: Config, smem: &Smem<'k>) {
        let position = self.copy_first(smem, QUERIES);
        let [grad_k, grad_v] = [(); 2].map(|()| acc_row(k, config.head_dim));
        let [scores, grads] = [(); 2].map(|()| acc_row(k, QUERIES));
        let log2 = self.score_scale.log2();
        let [keys, values] = smem.wait_resident(k.constant(0), warpgroup(k));
        self.for_each_tile(k, QUERIES, |query, lse_delta| {
            let products = [(keys, &scores[..]), (values, &grads)];
            let [(q_stage, q), (grad_out_stage, grad_out)] =
                products.map(|(tile, acc)| start_product(k, config, smem, tile, acc));
            let stats = lse_delta.at((query + fragment_column(k)) << 1);
            k.wgmma_wait_group(1);
            if self.score_scale.is_capped() {
                self.score_scale.apply_tanh(&scores);
                k.wgmma_wait_group(0);
                for_each_element(stats, &grads, |grad, [lse, delta], [j, i]| {
                    let t = scores[j][i].get();
                    scores[j][i].update(|t| prob(t, log2, lse));
                    let ds = |grad| (grad - delta) * scores[j][i].get();
                    grad.update(|grad| self.score_scale.backward(ds(grad), t));
                });
            } else {
                for_each_element(stats, &scores, |score, [lse, _], _| {
                    score.update(|score| prob(score, log2, lse));
                });
                k.wgmma_wait_group(0);
                for_each_element(stats, &grads, |grad, [_, delta], [j, i]| {
                    grad.update(|grad| (grad - delta) * scores[j][i].get());
                });
            }
            self.mask(query, QUERIES, &[&scores, &grads]);
            let [probs, grads] = [&scores, &grads].map(|acc| pack_fragments(config.target, acc));
            multiply(k, &probs, grad_out, &grad_v);
            multiply(k, &grads, q, &grad_k);
            k.wgmma_wait_group(0);
            smem.release(q_stage.index);
            smem.release(grad_out_stage.index);
            k.when(smem.copies, || self.copy_next(smem, QUERIES, &position));
        });
        self.grad_k.write_pairs(config.target, self.start, Some(self.scale), &grad_k);
        self.grad_v.write_pairs(config.target, self.start, None, &grad_v);
    }
}

/// Waits for the next streamed tile and starts its product with a resident one, which replaces
/// `acc`.
fn start_product<'k>(
    k: &Kernel<'k>,
    config: Config,
    smem: &Smem<'k>,
    resident: PlacedTile<'k>,
    acc: &[AccFragment<'k>],
) -> (Stage<'k>, PlacedTile<'k>) {
    let (stage, tile) = smem.wait();
    multiply_transposed(k, config.operands, [resident, tile], acc);
    (stage, tile)
}

/// The tile that is copied next.
struct Position<'k> {
    /// Its head, counted from the first one.
    head: Var<'k, u32>,
    /// Its first query.
    query: Var<'k, u32>,
}

/// Calls `body` for each element of `acc`, whose columns are queries, with `[log-sum-exp, delta]`
/// of its query, and its indices. `stats` points to the statistics of the lane's first query.
fn for_each_element<'k>(
    stats: Ptr<'k, f32>,
    acc: &[AccFragment<'k>],
    body: impl Fn(Var<'k, f32>, [Value<'k, f32>; 2], [usize; 2]),
) {
    for_each_fragment(stats, acc, |fragment, stats, j| {
        for (i, element) in fragment.iter().enumerate() {
            body(*element, stats[i % 2], [j, i]);
        }
    });
}

/// The same for each fragment: `body` gets the statistics of both of its queries.
fn for_each_fragment<'k>(
    stats: Ptr<'k, f32>,
    acc: &[AccFragment<'k>],
    body: impl Fn(&AccFragment<'k>, [[Value<'k, f32>; 2]; 2], usize),
) {
    for (j, fragment) in acc.iter().enumerate() {
        let [lse, delta, next_lse, next_delta] = stats.load_vec4(j as u32 * 16);
        body(fragment, [[lse, delta], [next_lse, next_delta]], j);
    }
}
