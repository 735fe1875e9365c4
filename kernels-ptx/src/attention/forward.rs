//! Forward pass, of whole sequences or of new tokens over a KV cache: a block has a tile of queries
//! and loops over the tiles of keys and values from the first key of its first query up to the
//! diagonal.

use retrograph_kernel_abi::Any;
use retrograph_kernel_abi::attention::{FlashForwardParameters, FlashPrefillParameters};
use retrograph_ptx::ast::Entry;
use retrograph_ptx::build::{Kernel, Ptr, Value};

use super::TILE_ROWS;
use super::config::{Config, Pass};
use super::epilogue::{Epilogue, ResultRows};
use super::loader::{HeadRows, PlacedTile, TileLoad, TileLoader};
use super::mask::{apply_causal_mask, lane_row};
use super::mma::{WarpMma, to_fragments};
use super::online_softmax::OnlineSoftmax;
use super::row_bounds::{Masked, RowBounds};
use super::score_scale::ScoreScale;
use crate::primitives::mma::{LANE_ROWS, acc_row};
use crate::primitives::output::Output;
use crate::primitives::parameters::Declarations;

/// The name of the entry.
pub(super) fn name(config: Config, pass: Pass) -> &'static str {
    pass.signature(config.family()).entries[config.entry]
}

/// The tiles of queries, keys and values, and their total words.
pub(super) fn smem_tiles(config: Config) -> ([PlacedTile; 3], u32) {
    PlacedTile::layout([config.block_rows(), TILE_ROWS, TILE_ROWS], config)
}

/// The entry.
pub(super) fn entry(config: Config, pass: Pass) -> Entry {
    Kernel::build(name(config, pass), |k| {
        k.max_threads(config.threads());
        k.min_blocks(if config.has_dynamic_smem() { 2 } else { 3 });
        let params = match pass {
            Pass::Sequences => Params::declare(k, config),
            Pass::Prefill => Params::declare_prefill(k, config),
        };
        let Params { q, keys, values, row: first_row, start, head_dim, bounds, .. } = params;
        let ([q_tile, k_tile, v_tile], words) = smem_tiles(config);
        let smem = config.smem(k, words);
        let loader = TileLoader::new(k, config, smem, head_dim);
        let tile_load = |source, start, tile: PlacedTile| {
            let first = k.constant(tile.first);
            TileLoad { source, start, first }
        };
        k.range(0, config.block_rows(), TILE_ROWS, |row| {
            let first = row * config.row_words() + q_tile.first;
            loader.load(TileLoad { source: q, start: first_row + row, first });
        });
        let first_key = bounds.first_key(TILE_ROWS);
        loader.load(tile_load(keys, first_key, k_tile));
        k.barrier();

        let warp = WarpMma::new(k, config, smem, params.head_dim);
        let out = acc_row(k, config.max_head_dim);
        let softmax = OnlineSoftmax::new(k, params.scale.factor);
        let end = (start + config.block_rows()).min(params.key_end);
        k.range(first_key, end, TILE_ROWS, |key| {
            let next = tile_load(values, key, v_tile);
            loader.fetch(next);
            let scores = acc_row(k, TILE_ROWS);
            warp.multiply_transposed([q_tile, k_tile], &scores);
            params.scale.apply_tanh(&scores);
            let crosses_diagonal = (key + (TILE_ROWS - 1)).gt(start);
            k.when(crosses_diagonal, || {
                apply_causal_mask(k, [start, key], true, &scores, f32::NEG_INFINITY);
            });
            bounds.apply(k, key, TILE_ROWS, &[&scores], f32::NEG_INFINITY);
            softmax.update(&scores, &out);
            let probs = to_fragments(config, &scores);
            loader.complete(next);
            k.barrier();
            let next = tile_load(keys, key + TILE_ROWS, k_tile);
            let more = next.start.lt(end);
            k.when(more, || loader.fetch(next));
            warp.multiply(&probs, v_tile, &out);
            k.when(more, || loader.complete(next));
            k.barrier();
        });
        softmax.finish(&out, |index, lse| {
            let Some(to) = params.lse else { return };
            let token = first_row + lane_row(k) + LANE_ROWS[index];
            let writes = token.lt(q.rows) & (k.lane() & 3).eq(0);
            k.when(writes, || {
                let lse = lse();
                to.store(token, lse);
            });
        });
        let smem = smem.reinterpret();
        let epilogue = Epilogue { kernel: *k, config, smem, head_dim, start: first_row };
        epilogue.write(params.out, &out, None);
    })
}

/// The parameters, and the position of this block.
#[derive(Clone, Copy)]
struct Params<'k> {
    q: HeadRows<'k>,
    keys: HeadRows<'k>,
    values: HeadRows<'k>,
    out: ResultRows<'k>,
    lse: Option<Ptr<'k, f32>>,
    head_dim: Value<'k, u32>,
    scale: ScoreScale<'k>,
    /// The first row of q of the block.
    row: Value<'k, u32>,
    /// The position of its query.
    start: Value<'k, u32>,
    /// The end of the keys.
    key_end: Value<'k, u32>,
    /// The first keys of the queries.
    bounds: RowBounds<'k>,
}

impl<'k> Params<'k> {
    fn declare(k: &Kernel<'k>, config: Config) -> Self {
        let parameters = FlashForwardParameters::declare(&mut Declarations(*k));
        let FlashForwardParameters { q, keys, values, out, out_bf16, lse, .. } = parameters;
        let FlashForwardParameters { seq, heads, kv_heads, head_dim, scale, .. } = parameters;
        let FlashForwardParameters { softcap, first_keys, .. } = parameters;
        let out = Output::new(out, out_bf16);
        let (sequence, head) = (k.ctaid_x() / heads, k.ctaid_x() % heads);
        let kv_head = head / (heads / kv_heads);
        let (first, head_words) = (sequence * seq, config.words(head_dim));
        let rows = |tensor: Ptr<'k, Any>, heads: Value<'k, u32>, head: Value<'k, u32>| {
            let stride = heads * head_words;
            let base = tensor.reinterpret().at(first.mul_wide(stride));
            HeadRows { base, stride, offset: head * head_words, rows: seq }
        };
        let stride = heads * head_dim;
        // Blocks with the most keys start first.
        let start = (k.nctaid_y() - 1 - k.ctaid_y()) * config.block_rows();
        let block_rows = config.block_rows();
        Self {
            q: rows(q, heads, head),
            keys: rows(keys, kv_heads, kv_head),
            values: rows(values, kv_heads, kv_head),
            out: ResultRows {
                first: out.at(first.mul_wide(stride) + (head * head_dim).cast::<u64>()),
                stride,
                rows: seq,
                rotation: None,
            },
            lse: Some(lse.at(k.ctaid_x().mul_wide(seq))),
            head_dim,
            scale: ScoreScale::new(config.capped, scale, softcap),
            row: start,
            start,
            key_end: seq,
            bounds: RowBounds::new(first_keys, Masked::Below, sequence, seq, start, block_rows),
        }
    }

    fn declare_prefill(k: &Kernel<'k>, config: Config) -> Self {
        let parameters = FlashPrefillParameters::declare(&mut Declarations(*k));
        let FlashPrefillParameters { q, keys, values, out, out_bf16, start, .. } = parameters;
        let FlashPrefillParameters { queries, positions, window, heads, .. } = parameters;
        let FlashPrefillParameters { kv_heads, head_dim, scale, softcap, .. } = parameters;
        k.return_if(queries.eq(0));
        let head = k.ctaid_x();
        let kv_head = head / (heads / kv_heads);
        let head_words = config.words(head_dim);
        let first = start.load(0).min(positions);
        // Blocks with the most keys start first.
        let row = (k.nctaid_y() - 1 - k.ctaid_y()) * config.block_rows();
        let rows = |tensor: Ptr<'k, Any>, [heads, head]: [Value<'k, u32>; 2], rows| HeadRows {
            base: tensor.reinterpret(),
            stride: heads * head_words,
            offset: head * head_words,
            rows,
        };
        let cached = |tensor| rows(tensor, [kv_heads, kv_head], positions);
        Self {
            q: rows(q, [heads, head], queries),
            keys: cached(keys),
            values: cached(values),
            out: ResultRows {
                first: Output::new(out, out_bf16).at((head * head_dim).cast::<u64>()),
                stride: heads * head_dim,
                rows: queries,
                rotation: None,
            },
            lse: None,
            head_dim,
            scale: ScoreScale::new(config.capped, scale, softcap),
            row,
            start: first + row,
            key_end: (first + queries).min(positions),
            bounds: RowBounds::window(window, first + row, config.block_rows()),
        }
    }
}
