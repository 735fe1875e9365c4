//! The gradient of q from split operands, in tiles of 32 keys. Each warpgroup ends at the tile of
//! its own diagonal.

use std::f32::consts::LOG2_E;

use retrograph_ptx::build::{Kernel, Value};

use super::{Config, Work};
use crate::attention::mask::apply_causal_mask;
use crate::attention::wgmma::smem::{PlacedTile, Smem};
use crate::attention::wgmma::split::{SplitRows, for_each};
use crate::attention::wgmma::{multiply_transposed, warpgroup};
use crate::primitives::mma::acc_row;
use crate::primitives::wgmma::ROWS;

/// Keys of a tile.
pub(super) const KEYS: u32 = 32;
/// Tiles of keys and values in flight.
pub(super) const STAGES: u32 = 6;

impl<'k> Work<'k> {
    /// Copies the first tiles of keys and values.
    pub(super) fn prefetch_split(&self, k: &Kernel<'k>, smem: &Smem<'k>) {
        let [first, end] = self.tiles(KEYS);
        k.range(first, end.min(first + smem.pairs()), 1, |tile| self.copy(smem, tile * KEYS));
    }

    pub(super) fn compute_split(
        &self,
        k: &Kernel<'k>,
        config: Config,
        smem: &Smem<'k>,
        [queries, grad_out]: [PlacedTile<'k>; 2],
    ) {
        let [first, end] = self.tiles(KEYS);
        let grad_q = acc_row(k, config.head_dim);
        let (scores, grads) = (acc_row(k, KEYS), acc_row(k, KEYS));
        let scale_log2 = self.scale * LOG2_E;
        let stats = self.stats(k);
        let [q_scales, k_scales, v_scales, grad_out_scales] = self.scales;
        let [q_rows, grad_out_rows] =
            [q_scales, grad_out_scales].map(|scales| scales.of_rows(self.start));
        let first_query = self.start + warpgroup(k) * ROWS;
        k.range(first, end.min((first_query + ROWS) / KEYS), 1, |tile| {
            let key = tile * KEYS;
            let (keys_stage, keys) = smem.wait();
            multiply_transposed(k, config.operands, [queries, keys], &scores);
            let (values_stage, values) = smem.wait();
            multiply_transposed(k, config.operands, [grad_out, values], &grads);
            let [key_scales, value_scales] =
                [k_scales, v_scales].map(|scales| scales.of_columns(key, scores.len()));
            k.wgmma_wait_group(1);
            for_each(&scores, |score, [row, column], j| {
                let ([lse, _], factor) = (stats[row], q_rows[row] * key_scales[j][column]);
                score.update(|score| (score * factor).fma(scale_log2, -lse).exp2_ftz());
            });
            k.wgmma_wait_group(0);
            smem.release(values_stage.index);
            for_each(&grads, |grad, [row, column], j| {
                let [_, delta] = stats[row];
                let factor = grad_out_rows[row] * value_scales[j][column];
                let prob = scores[j][row * 2 + column].get();
                let ds = |grad: Value<'k, f32>| grad.fma(factor, -delta) * prob;
                grad.update(|grad| ds(grad) * key_scales[j][column]);
            });
            // Masked after p and ds, so that a non-finite query doesn't spoil later keys.
            k.when((key + (KEYS - 1)).gt(first_query), || {
                apply_causal_mask(k, [self.start, key], true, &grads, 0.0);
            });
            self.bounds.apply(k, key, KEYS, &[&grads], 0.0);
            let grads = SplitRows::new(k, config.target, &grads);
            grads.multiply(k, keys, config.head_dim, &grad_q);
            smem.release(keys_stage.index);
            let later = tile + smem.pairs();
            k.when(smem.copies & later.lt(end), || self.copy(smem, later * KEYS));
        });
        self.grad_q.write_pairs(config.target, self.start, Some(self.scale), &grad_q);
    }
}
