//! Backward pass: a block has a tile of queries and loops over the keys from the first key of its
//! first query up to the diagonal, or it has a tile of keys and loops over the queries from the
//! diagonal to the end of the queries of its last key, for each head of its group.
//!
//! Both recompute p and ds: `grad_q` with queries as rows, `grad_kv` with keys as rows, so that
//! they are in the right registers for the next product. Probability gradients are computed before
//! scores: the streamed operand of the scores (k or q) is in flight meanwhile. In `grad_q` the next
//! tile of v then loads while the scores are computed.

use retrograph_kernel_abi::attention::{FlashAttention, FlashBackwardParameters, LSE_DELTA_ROWS};
use retrograph_kernel_abi::{Any, DType};
use retrograph_ptx::ast::Entry;
use retrograph_ptx::build::{Kernel, Pred, Ptr, Shared, Value, Var};

use super::TILE_ROWS;
use super::config::Config;
use super::epilogue::{Epilogue, ResultRows};
use super::inverse_rope::InverseRope;
use super::loader::{HeadRows, PlacedTile, TileLoad, TileLoader};
use super::mask::apply_causal_mask;
use super::mma::{WarpMma, to_fragments};
use super::row_bounds::{Masked, RowBounds};
use super::score_grads::ScoreGrads;
use super::score_scale::ScoreScale;
use crate::primitives::mma::{AccFragment, acc_row};
use crate::primitives::output::Output;
use crate::primitives::parameters::Declarations;

/// The rows of `lse_delta` per head, for sequences of `seq` tokens.
pub(super) fn padded_rows(seq: Value<'_, u32>) -> Value<'_, u32> {
    (seq + (LSE_DELTA_ROWS - 1)) & !(LSE_DELTA_ROWS - 1)
}

/// The tensor whose rows a block handles.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// Queries: computes the gradient of q.
    Queries,
    /// Keys: computes the gradients of k and v.
    Keys,
}

/// The name of the entry.
pub(super) fn name(config: Config, side: Side) -> &'static str {
    let kernel = match side {
        Side::Queries => config.family().grad_q,
        Side::Keys => config.family().grad_kv,
    };
    kernel.entries[config.entry]
}

/// The resident tiles (q and grad_out, or k and v), the tiles that the loop loads (k and v, or q
/// and grad_out), and their total words.
pub(super) fn smem_tiles(config: Config) -> ([PlacedTile; 4], u32) {
    let rows = config.block_rows();
    PlacedTile::layout([rows, rows, TILE_ROWS, TILE_ROWS], config)
}

/// The entry whose rows are `side`.
pub(super) fn entry(config: Config, side: Side) -> Entry {
    Kernel::build(name(config, side), |k| {
        k.max_threads(config.threads());
        k.min_blocks(2);
        let params = Params::declare(k, config, side);
        let (tiles, words) = smem_tiles(config);
        let smem = config.smem(k, words);
        let loader = TileLoader::new(k, config, smem, params.head_dim);
        let block = Block { k: *k, config, params, tiles, smem, loader };
        match side {
            Side::Queries => block.compute(Grads::Queries),
            Side::Keys if FlashAttention::separates_grad_kv(config.max_head_dim) => k.when_else(
                k.ctaid_z().eq(0),
                || block.compute(Grads::Keys),
                || block.compute(Grads::Values),
            ),
            Side::Keys => block.compute(Grads::KeysAndValues),
        }
    })
}

/// The gradients that a block computes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Grads {
    Queries,
    Keys,
    Values,
    KeysAndValues,
}

impl Grads {
    /// Whether a product of the score gradients is needed: the gradient of q or k.
    fn uses_score_grads(self) -> bool {
        self != Self::Values
    }

    /// Whether a product of the probabilities is needed: the gradient of v.
    fn uses_probs(self) -> bool {
        matches!(self, Self::Values | Self::KeysAndValues)
    }
}

/// A block, and its share of the operands.
struct Block<'k> {
    k: Kernel<'k>,
    config: Config,
    params: Params<'k>,
    tiles: [PlacedTile; 4],
    smem: Shared<'k, u32>,
    loader: TileLoader<'k>,
}

impl<'k> Block<'k> {
    /// Computes and writes `wanted`.
    fn compute(&self, wanted: Grads) {
        let Self { k, config, params, tiles, smem, loader } = self;
        let (config, [resident, resident_other, streamed, streamed_other]) = (*config, *tiles);
        params.load_resident(loader, [resident, resident_other]);
        let position = LoopPosition::new(k, params);
        let tile_load = |tile: PlacedTile, source| {
            let (start, first) = (position.start.get(), k.constant(tile.first));
            TileLoad { source, start, first }
        };
        loader.load(tile_load(streamed_other, params.streamed[1]));
        k.barrier();

        let warp = WarpMma::new(k, config, *smem, params.head_dim);
        let sums = |wanted: bool| if wanted { acc_row(k, config.max_head_dim) } else { Vec::new() };
        let (grad, grad_v) = (sums(wanted.uses_score_grads()), sums(wanted.uses_probs()));
        let score_grads = ScoreGrads::new(k, params);
        k.range(0, position.count, 1, |index| {
            let start = position.start.get();
            score_grads.fetch(start, position.head.get());
            let current = tile_load(streamed, position.sources(params)[0]);
            loader.fetch(current);
            let (scores, grads) = (acc_row(k, TILE_ROWS), acc_row(k, TILE_ROWS));
            if wanted.uses_score_grads() {
                warp.multiply_transposed([resident_other, streamed_other], &grads);
            }
            loader.complete(current);
            k.barrier();
            position.advance();
            let next = tile_load(streamed_other, position.sources(params)[1]);
            let more = (index + 1).lt(position.count);
            // The gradient of v is the last to read the tile that `next` replaces.
            if !wanted.uses_probs() {
                k.when(more, || loader.fetch(next));
            }
            warp.multiply_transposed([resident, streamed], &scores);
            score_grads.compute(&scores, &grads);
            // Masked after p and ds, so that a non-finite query doesn't spoil later keys.
            params.mask(k, start, [&scores, &grads]);
            let [probs, grads] = [scores, grads].map(|acc| to_fragments(config, &acc));
            if wanted.uses_probs() {
                warp.multiply(&probs, streamed_other, &grad_v);
                k.barrier();
                k.when(more, || loader.fetch(next));
            }
            if wanted.uses_score_grads() {
                warp.multiply(&grads, streamed, &grad);
            }
            k.when(more, || loader.complete(next));
            k.barrier();
        });
        let Params { start, head_dim, scale, grads: [first, second], .. } = *params;
        let epilogue = Epilogue { kernel: *k, config, smem: smem.reinterpret(), head_dim, start };
        if wanted.uses_score_grads() {
            epilogue.write(first, &grad, scale);
        }
        if wanted.uses_probs() {
            epilogue.write(second, &grad_v, None);
        }
    }
}

/// The parameters, and the position of this block.
pub(super) struct Params<'k> {
    config: Config,
    pub(super) side: Side,
    /// The rows of the block: q and grad_out, or k and v.
    resident: [HeadRows<'k>; 2],
    /// The rows that it loops over, in the first head.
    streamed: [HeadRows<'k>; 2],
    /// Logsumexp and delta of each query, in the first head.
    pub(super) query_stats: Ptr<'k, u64>,
    /// Rows of `query_stats` per head.
    pub(super) padded: Value<'k, u32>,
    /// The outputs; the second one is used if rows are keys.
    grads: [ResultRows<'k>; 2],
    seq: Value<'k, u32>,
    head_dim: Value<'k, u32>,
    scale: Value<'k, f32>,
    pub(super) score_scale: ScoreScale<'k>,
    /// First row of the block.
    pub(super) start: Value<'k, u32>,
    /// The first keys of queries, or the ends of the queries of keys.
    bounds: RowBounds<'k>,
    /// Heads to loop over.
    heads: Value<'k, u32>,
}

impl<'k> Params<'k> {
    fn declare(k: &Kernel<'k>, config: Config, side: Side) -> Self {
        let parameters = FlashBackwardParameters::declare(&mut Declarations(*k));
        let FlashBackwardParameters { q, keys, values, grad_out, lse_delta, grads, .. } =
            parameters;
        let FlashBackwardParameters { batch, seq, heads, kv_heads, head_dim, .. } = parameters;
        let FlashBackwardParameters { splits, scale, softcap, row_bounds, .. } = parameters;
        let FlashBackwardParameters { grads_bf16, .. } = parameters;
        let (x, y, group) = (k.ctaid_x(), k.ctaid_y(), heads / kv_heads);
        let (sequence, head, kv_head, split) = match side {
            Side::Queries => {
                let head = x % heads;
                (x / heads, head, head / group, k.constant(0))
            }
            // A block has `group / splits` heads of the group of its key head.
            Side::Keys => {
                let (split, plane) = (x % splits, x / splits);
                let kv_head = plane % kv_heads;
                (plane / kv_heads, kv_head * group + split * (group / splits), kv_head, split)
            }
        };
        let head_words = config.words(head_dim);
        let rows = |tensor: Ptr<'k, Any>, heads, head: Value<'k, u32>, token| {
            let stride = head_words * heads;
            let base = tensor.reinterpret().at(stride.mul_wide(token));
            HeadRows { base, stride, offset: head * head_words, rows: seq }
        };
        // A separate launch rotates f32 gradients.
        let rotation =
            (config.dtype == DType::Bf16).then(|| InverseRope::new(&parameters, sequence));
        let grads = Output::new(grads, grads_bf16);
        let result = |heads, head: Value<'k, u32>, token, rotation| {
            let stride = head_dim * heads;
            let first = stride.mul_wide(token) + (head * head_dim).cast::<u64>();
            ResultRows { first: grads.at(first), stride, rows: seq, rotation }
        };
        let first = sequence * seq;
        let queries = [q, grad_out].map(|tensor| rows(tensor, heads, head, first));
        let key_rows = [keys, values].map(|tensor| rows(tensor, kv_heads, kv_head, first));
        // The gradients of k and v are [split, 2, batch, seq, kv_heads, head_dim].
        let plane = |index: u32| (split * 2 + index) * (batch * seq) + first;
        let (resident, streamed, grads) = match side {
            Side::Queries => (queries, key_rows, [result(heads, head, first, rotation); 2]),
            Side::Keys => {
                let grads = [(0, rotation), (1, None)]
                    .map(|(index, rotation)| result(kv_heads, kv_head, plane(index), rotation));
                (key_rows, queries, grads)
            }
        };
        let padded = padded_rows(seq);
        let query_stats = lse_delta.reinterpret().at((sequence * heads + head).mul_wide(padded));
        // Blocks with the longest loops start first.
        let (start, heads) = match side {
            Side::Queries => ((k.nctaid_y() - 1 - y) * config.block_rows(), k.constant(1)),
            Side::Keys => (y * config.block_rows(), group / splits),
        };
        let masked = match side {
            Side::Queries => Masked::Below,
            Side::Keys => Masked::From,
        };
        let bounds = RowBounds::new(row_bounds, masked, sequence, seq, start, config.block_rows());
        Self {
            config,
            side,
            resident,
            streamed,
            query_stats,
            padded,
            grads,
            seq,
            head_dim,
            scale,
            score_scale: ScoreScale::new(config.capped, scale, softcap),
            start,
            bounds,
            heads,
        }
    }

    /// Loads the rows of the block.
    fn load_resident(&self, loader: &TileLoader<'k>, tiles: [PlacedTile; 2]) {
        let (k, config) = (self.start.kernel(), self.config);
        for (tile, source) in tiles.into_iter().zip(self.resident) {
            k.range(0, config.block_rows(), TILE_ROWS, |row| {
                let first = row * config.row_words() + tile.first;
                loader.load(TileLoad { source, start: self.start + row, first });
            });
        }
    }

    /// Zeroes the masked elements of p and ds, for the tile that starts at `start`.
    fn mask(&self, k: &Kernel<'k>, start: Value<'k, u32>, [probs, grads]: [&[AccFragment<'k>]; 2]) {
        let rows_are_queries = self.side == Side::Queries;
        // The gradient of q doesn't use p.
        let accs: &[&[_]] = if rows_are_queries { &[grads] } else { &[probs, grads] };
        k.when(self.crosses_diagonal(start), || {
            for acc in accs.iter().rev() {
                apply_causal_mask(k, [self.start, start], rows_are_queries, acc, 0.0);
            }
        });
        self.bounds.apply(k, start, TILE_ROWS, accs, 0.0);
    }

    /// Start and end of the loop over the rows of one head.
    fn range(&self) -> [Value<'k, u32>; 2] {
        let end = self.start + self.config.block_rows();
        match self.side {
            Side::Queries => [self.bounds.first_key(TILE_ROWS), end.min(self.seq)],
            Side::Keys => [self.start, self.bounds.query_end()],
        }
    }

    /// Whether the tile that starts at `start` has masked elements.
    fn crosses_diagonal(&self, start: Value<'k, u32>) -> Pred<'k> {
        match self.side {
            Side::Queries => (start + (TILE_ROWS - 1)).gt(self.start),
            Side::Keys => start.lt(self.start + (self.config.block_rows() - 1)),
        }
    }
}

/// The position of the loop over the tiles of all heads.
struct LoopPosition<'k> {
    range: [Value<'k, u32>; 2],
    /// Tiles of all heads.
    count: Value<'k, u32>,
    /// First row of the tile, and its head, counted from the first one.
    start: Var<'k, u32>,
    head: Var<'k, u32>,
}

impl<'k> LoopPosition<'k> {
    fn new(k: &Kernel<'k>, params: &Params<'k>) -> Self {
        let range = params.range();
        let tiles = (range[1] - range[0] + (TILE_ROWS - 1)) / TILE_ROWS;
        Self { range, count: tiles * params.heads, start: k.var(range[0]), head: k.var(0u32) }
    }

    /// Advances to the next tile. After the last one the head may be out of bounds.
    fn advance(&self) {
        let next = self.start.get() + TILE_ROWS;
        let wraps = next.ge(self.range[1]);
        self.start.set(wraps.select(self.range[0], next));
        self.head.update(|head| wraps.select(head + 1, head));
    }

    /// The streamed rows in the head of the tile.
    fn sources(&self, params: &Params<'k>) -> [HeadRows<'k>; 2] {
        let (head, head_words) = (self.head.get(), params.config.words(params.head_dim));
        params.streamed.map(|first| {
            let offset = head.mad_lo(head_words, first.offset);
            HeadRows { offset, ..first }
        })
    }
}
