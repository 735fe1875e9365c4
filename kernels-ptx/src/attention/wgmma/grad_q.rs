//! The gradient of q: a tile of 128 queries loops over the tiles of 64 keys and values from the
//! first key of its first query up to the diagonal.
//!
//! The product of the score gradients with the keys overlaps with the scores of the next tile.

mod split;
mod wide;

use retrograph_kernel_abi::attention::{FlashBackwardParameters, WGMMA_ROWS};
use retrograph_ptx::ast::Entry;
use retrograph_ptx::build::{Kernel, Ptr, Value};

use super::smem::{HeadMap, PlacedTile, Smem, SmemLayout};
use super::split::RowScales;
use super::tile_scheduler::{Tile, TileScheduler, TileWork};
use super::{Config, Operands, bound_block, multiply, multiply_transposed, warpgroup};
use crate::attention::backward::padded_rows;
use crate::attention::epilogue::ResultRows;
use crate::attention::mask::{apply_causal_mask, lane_row};
use crate::attention::mma::pack_fragments;
use crate::attention::row_bounds::{Masked, RowBounds};
use crate::attention::score_scale::{ScoreScale, prob};
use crate::primitives::mma::{AccFragment, LANE_ROWS, acc_row};
use crate::primitives::output::Output;
use crate::primitives::parameters::Declarations;
use crate::primitives::tma_pipeline::Producer;

/// Keys of a tile.
const KEYS: u32 = 64;

/// The name of the entry.
pub(super) fn name(config: Config) -> &'static str {
    config.family().grad_q.entries[config.entry]
}

/// Queries and gradients of the output are resident.
pub(super) fn smem_layout(config: Config) -> SmemLayout {
    let (keys, stages) = match config.operands {
        Operands::Bf16 if config.is_wide() => (KEYS, wide::KEY_STAGES),
        Operands::Bf16 => (KEYS, 8),
        Operands::Split => (split::KEYS, split::STAGES),
    };
    SmemLayout {
        terms: config.operands.terms(),
        resident: config.tile(WGMMA_ROWS),
        resident_count: 2,
        streamed: config.tile(keys),
        stages,
        producer: Producer::Warp,
    }
}

/// Dynamic shared memory in bytes.
pub(super) fn smem_bytes(config: Config) -> u32 {
    let values = if config.is_wide() { wide::values_layout(config).bytes() } else { 0 };
    smem_layout(config).bytes() + values
}

/// The entry.
pub(in crate::attention) fn entry(config: Config) -> Entry {
    Kernel::build(name(config), |k| {
        bound_block(k);
        let parameters = FlashBackwardParameters::declare(&mut Declarations(*k));
        let FlashBackwardParameters { batch, seq, heads, .. } = parameters;
        let scheduler = TileScheduler {
            kernel: *k,
            heads,
            sequences: batch,
            tiles: (seq + (WGMMA_ROWS - 1)) / WGMMA_ROWS,
            is_persistent: config.family().has_persistent_queries(),
        };
        let layout = smem_layout(config);
        let declare = || match config.is_wide() {
            true => vec![layout.declare(k), wide::values_layout(config).declare_after(k, layout)],
            false => vec![layout.declare(k)],
        };
        scheduler.run(config, declare, |tile| Work::new(config, &parameters, tile));
    })
}

/// The operands and results of a tile of queries.
#[derive(Clone, Copy)]
struct Work<'k> {
    q: HeadMap<'k>,
    grad_out: HeadMap<'k>,
    keys: HeadMap<'k>,
    values: HeadMap<'k>,
    /// Log-sum-exp and delta of each query.
    lse_delta: Ptr<'k, f32>,
    grad_q: ResultRows<'k>,
    /// The scales of split q, keys, values and gradients of the output.
    scales: [RowScales<'k>; 4],
    scale: Value<'k, f32>,
    score_scale: ScoreScale<'k>,
    /// The first query of the tile.
    start: Value<'k, u32>,
    /// The first keys of the queries.
    bounds: RowBounds<'k>,
}

impl<'k> Work<'k> {
    fn new(
        config: Config,
        parameters: &FlashBackwardParameters<Declarations<'k>>,
        tile: Tile<'k>,
    ) -> Self {
        let FlashBackwardParameters { lse_delta, grads, grads_bf16, seq, heads, .. } = *parameters;
        let FlashBackwardParameters { kv_heads, head_dim, scale, softcap, q_map, .. } = *parameters;
        let FlashBackwardParameters { k_map, .. } = *parameters;
        let FlashBackwardParameters { v_map, grad_out_map, row_bounds, .. } = *parameters;
        let FlashBackwardParameters { q_scales, k_scales, v_scales, grad_out_scales, .. } =
            *parameters;
        let Tile { sequence, head, index } = tile;
        let kv_head = head / (heads / kv_heads);
        let planes = [sequence, parameters.batch];
        let head_map = |map, head| HeadMap::new(map, config.operands, planes, head, head_dim);
        let stride = heads * head_dim;
        let first = (sequence * seq).mul_wide(stride) + (head * head_dim).cast::<u64>();
        let padded = padded_rows(seq);
        let start = index * WGMMA_ROWS;
        let bounds = RowBounds::new(row_bounds, Masked::Below, sequence, seq, start, WGMMA_ROWS);
        Self {
            q: head_map(q_map, head),
            grad_out: head_map(grad_out_map, head),
            keys: head_map(k_map, kv_head),
            values: head_map(v_map, kv_head),
            lse_delta: lse_delta.at((sequence * heads + head).mul_wide(padded) << 1),
            grad_q: ResultRows {
                first: Output::new(grads, grads_bf16).at(first),
                stride,
                rows: seq,
                rotation: config.rotation(parameters, sequence),
            },
            scales: [q_scales, k_scales, v_scales, grad_out_scales]
                .map(|scales| RowScales::new(scales, [sequence, seq])),
            scale,
            score_scale: ScoreScale::new(config.capped, scale, softcap),
            start,
            bounds,
        }
    }

    /// The first and the end of the tiles of `keys` keys.
    fn tiles(&self, keys: u32) -> [Value<'k, u32>; 2] {
        let end = (self.start + WGMMA_ROWS).min(self.grad_q.rows);
        [self.bounds.first_key(keys) / keys, (end + (keys - 1)) / keys]
    }

    /// Copies tiles of keys and values from `key` on.
    fn copy(&self, smem: &Smem<'k>, key: Value<'k, u32>) {
        smem.copy(self.keys, key);
        smem.copy(self.values, key);
    }

    /// Log-sum-exp and delta of the lane's two queries.
    fn stats(&self, k: &Kernel<'k>) -> [[Value<'k, f32>; 2]; 2] {
        LANE_ROWS.map(|offset| {
            let query = self.start + lane_row(k) + offset;
            self.lse_delta.load_vec2(query << 1)
        })
    }

    /// Copies the first tiles of keys and values. A pair of stages stays free, because the last
    /// product of the tile before may still read the keys in one of them.
    fn prefetch_bf16(&self, k: &Kernel<'k>, smem: &Smem<'k>) {
        let [first, end] = self.tiles(KEYS);
        let copied = first + (smem.pairs() - 1);
        k.range(first, end.min(copied), 1, |tile| self.copy(smem, tile * KEYS));
    }

    fn compute_bf16(
        &self,
        k: &Kernel<'k>,
        config: Config,
        smem: &Smem<'k>,
        [queries, grad_out]: [PlacedTile<'k>; 2],
        next: impl FnOnce(),
    ) {
        let [first, end] = self.tiles(KEYS);
        let grad_q = acc_row(k, config.head_dim);
        let (scores, grads) = (acc_row(k, KEYS), acc_row(k, KEYS));
        let log2 = self.score_scale.log2();
        let stats = self.stats(k);
        let previous = k.var(0u32);
        k.range(first, end, 1, |tile| {
            let (keys_stage, keys) = smem.wait();
            multiply_transposed(k, config.operands, [queries, keys], &scores);
            let (values_stage, values) = smem.wait();
            multiply_transposed(k, config.operands, [grad_out, values], &grads);
            k.wgmma_wait_group(2);
            k.when(tile.ne(first), || smem.release(previous.get()));
            k.wgmma_wait_group(1);
            self.grad_factors(&stats, log2, &scores);
            // The branch keeps ptxas from moving the wait before the factors.
            let later = tile + (smem.pairs() - 1);
            k.when(smem.copies & later.lt(end), || self.copy(smem, later * KEYS));
            previous.set(keys_stage.index);
            k.wgmma_wait_group(0);
            smem.release(values_stage.index);
            self.score_grads(k, &stats, tile, [&scores, &grads]);
            let grads = pack_fragments(config.target, &grads);
            multiply(k, &grads, keys, &grad_q);
        });
        next();
        k.wgmma_wait_group(0);
        smem.release(previous.get());
        self.grad_q.write_pairs(config.target, self.start, Some(self.scale), &grad_q);
    }

    /// Replaces products by the factors of the gradients of their scores: the probabilities, times
    /// the derivative of the cap.
    fn grad_factors(
        &self,
        stats: &[[Value<'k, f32>; 2]; 2],
        log2: Value<'k, f32>,
        products: &[AccFragment<'k>],
    ) {
        self.score_scale.apply_tanh(products);
        for fragment in products {
            for (index, product) in fragment.iter().enumerate() {
                let [lse, _] = stats[index / 2];
                product.update(|t| self.score_scale.backward(prob(t, log2, lse), t));
            }
        }
    }

    /// Computes the score gradients of tile `tile` of keys from [`Self::grad_factors`] and, in
    /// `grads`, the gradients of the probabilities.
    fn score_grads(
        &self,
        k: &Kernel<'k>,
        stats: &[[Value<'k, f32>; 2]; 2],
        tile: Value<'k, u32>,
        [factors, grads]: [&[AccFragment<'k>]; 2],
    ) {
        for (factors, grads) in factors.iter().zip(grads) {
            for (index, (factor, grad)) in factors.iter().zip(grads).enumerate() {
                let [_, delta] = stats[index / 2];
                grad.update(|grad| (grad - delta) * factor.get());
            }
        }
        // Masked after p and ds, so that a non-finite query doesn't spoil later keys.
        let key = tile * KEYS;
        k.when((key + (KEYS - 1)).gt(self.start), || {
            apply_causal_mask(k, [self.start, key], true, grads, 0.0);
        });
        self.bounds.apply(k, key, KEYS, &[grads], 0.0);
    }
}

impl<'k> TileWork<'k> for Work<'k> {
    fn prefetch(&self, k: &Kernel<'k>, config: Config, smem: &[Smem<'k>]) {
        smem[0].copy_resident(&[self.q, self.grad_out], self.start);
        match (config.operands, smem) {
            (Operands::Bf16, [keys, values]) => self.prefetch_wide(keys, values),
            (Operands::Bf16, _) => self.prefetch_bf16(k, &smem[0]),
            (Operands::Split, _) => self.prefetch_split(k, &smem[0]),
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
        let resident = smem[0].wait_resident(parity, warpgroup(k));
        match (config.operands, smem) {
            (Operands::Bf16, [keys, values]) => {
                self.compute_wide(k, config, [keys, values], resident, next);
            }
            (Operands::Bf16, _) => self.compute_bf16(k, config, &smem[0], resident, next),
            (Operands::Split, _) => self.compute_split(k, config, &smem[0], resident),
        }
    }
}
