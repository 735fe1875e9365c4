//! The gradient of q: a block has 128 queries and loops over the tiles of 64 keys and values from
//! the first key of its first query up to the diagonal.
//!
//! The product of the score gradients with the keys overlaps with the scores of the next tile.

mod split;
mod wide;

use retrograph_kernel_abi::attention::{FlashBackwardParameters, WGMMA_ROWS};
use retrograph_ptx::ast::Entry;
use retrograph_ptx::build::{Kernel, Ptr, Value};

use super::smem::{HeadMap, Smem, SmemLayout};
use super::split::RowScales;
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
use crate::primitives::tma_pipeline::{PipelineState, Producer};

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
        let params = Params::declare(k, config);
        k.return_if(params.start.ge(params.grad_q.rows));
        let smem = smem_layout(config).declare(k);
        match config.operands {
            Operands::Bf16 if config.is_wide() => {
                let values = wide::values_layout(config).declare_after(k, smem_layout(config));
                params.compute_wide(k, config, [&smem, &values]);
            }
            Operands::Bf16 => params.compute(k, config, &smem),
            Operands::Split => params.compute_split(k, config, &smem),
        }
    })
}

/// The parameters, and the position of this block.
#[derive(Clone, Copy)]
struct Params<'k> {
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
    /// The first query of the block.
    start: Value<'k, u32>,
    /// The first keys of the queries.
    bounds: RowBounds<'k>,
}

impl<'k> Params<'k> {
    fn declare(k: &Kernel<'k>, config: Config) -> Self {
        let parameters = FlashBackwardParameters::declare(&mut Declarations(*k));
        let FlashBackwardParameters { lse_delta, grads, grads_bf16, seq, heads, .. } = parameters;
        let FlashBackwardParameters { kv_heads, head_dim, scale, softcap, q_map, .. } = parameters;
        let FlashBackwardParameters { k_map, .. } = parameters;
        let FlashBackwardParameters { v_map, grad_out_map, row_bounds, .. } = parameters;
        let FlashBackwardParameters { q_scales, k_scales, v_scales, grad_out_scales, .. } =
            parameters;
        let (sequence, head) = (k.ctaid_x() / heads, k.ctaid_x() % heads);
        let kv_head = head / (heads / kv_heads);
        let planes = [sequence, parameters.batch];
        let head_map = |map, head| HeadMap::new(map, config.operands, planes, head, head_dim);
        let stride = heads * head_dim;
        let first = (sequence * seq).mul_wide(stride) + (head * head_dim).cast::<u64>();
        let padded = padded_rows(seq);
        // Blocks with the most keys start first.
        let start = (k.nctaid_y() - 1 - k.ctaid_y()) * WGMMA_ROWS;
        let bounds = RowBounds::new(row_bounds, Masked::Below, sequence, seq, start, WGMMA_ROWS);
        Self {
            q: head_map(q_map, head),
            grad_out: head_map(grad_out_map, head),
            keys: head_map(k_map, kv_head),
            values: head_map(v_map, kv_head),
            lse_delta: lse_delta.at(k.ctaid_x().mul_wide(padded) << 1),
            grad_q: ResultRows {
                first: Output::new(grads, grads_bf16).at(first),
                stride,
                rows: seq,
                rotation: config.rotation(&parameters, sequence),
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

    fn compute(&self, k: &Kernel<'k>, config: Config, smem: &Smem<'k>) {
        let [first, end] = self.tiles(KEYS);
        k.when(smem.copies, || {
            smem.copy_resident(&[self.q, self.grad_out], self.start);
            k.range(first, end.min(first + smem.pairs()), 1, |tile| self.copy(smem, tile * KEYS));
        });
        let state = PipelineState::new(k);
        let grad_q = acc_row(k, config.head_dim);
        let (scores, grads) = (acc_row(k, KEYS), acc_row(k, KEYS));
        let log2 = self.score_scale.log2();
        let stats = self.stats(k);
        let [queries, grad_out] = smem.wait_resident(0, warpgroup(k));
        let previous = k.var(0u32);
        k.range(first, end, 1, |tile| {
            let (keys_stage, keys) = smem.wait(state);
            multiply_transposed(k, config.operands, [queries, keys], &scores);
            let (values_stage, values) = smem.wait(state);
            multiply_transposed(k, config.operands, [grad_out, values], &grads);
            k.wgmma_wait_group(2);
            k.when(tile.ne(first), || smem.release(previous.get()));
            k.wgmma_wait_group(1);
            self.grad_factors(&stats, log2, &scores);
            // The branch keeps ptxas from moving the wait before the factors.
            let next = tile + (smem.pairs() - 1);
            k.when(smem.copies & tile.ne(first) & next.lt(end), || self.copy(smem, next * KEYS));
            previous.set(keys_stage.index);
            k.wgmma_wait_group(0);
            smem.release(values_stage.index);
            self.score_grads(k, &stats, tile, [&scores, &grads]);
            let grads = pack_fragments(config.target, &grads);
            multiply(k, &grads, keys, &grad_q);
        });
        k.wgmma_wait_group(0);
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
