//! The forward pass of split operands. A tile has 64 keys, so that two stages with both terms of
//! keys and values fit in shared memory. Each warpgroup ends at the tile of its own diagonal.

use retrograph_kernel_abi::attention::WGMMA_ROWS;
use retrograph_ptx::build::{Kernel, Value};

use super::{Config, Work};
use crate::attention::mask::apply_causal_mask;
use crate::attention::online_softmax::OnlineSoftmax;
use crate::attention::wgmma::smem::{PlacedTile, Smem};
use crate::attention::wgmma::split::{SplitRows, for_each};
use crate::attention::wgmma::{multiply_transposed, warpgroup};
use crate::primitives::mma::acc_row;
use crate::primitives::wgmma::ROWS;

/// Keys of a tile, equal to the queries of a warpgroup.
pub(super) const KEYS: u32 = ROWS;
/// Tiles of keys and values in flight.
pub(super) const STAGES: u32 = 4;

impl<'k> Work<'k> {
    /// The first tile of keys, and the end of the tiles.
    fn split_tiles(&self) -> [Value<'k, u32>; 2] {
        let end = ((self.start + WGMMA_ROWS).min(self.out.rows) + (KEYS - 1)) / KEYS;
        [self.bounds.first_key(KEYS) / KEYS, end]
    }

    pub(super) fn prefetch_split(&self, k: &Kernel<'k>, smem: &Smem<'k>) {
        let [first, end] = self.split_tiles();
        k.range(first, end.min(first + smem.pairs()), 1, |tile| self.copy(smem, tile * KEYS));
    }

    pub(super) fn compute_split(
        &self,
        k: &Kernel<'k>,
        config: Config,
        smem: &Smem<'k>,
        [queries]: [PlacedTile<'k>; 1],
    ) {
        let [first, end] = self.split_tiles();
        let (out, scores) = (acc_row(k, config.head_dim), acc_row(k, KEYS));
        let softmax = OnlineSoftmax::new(k, self.scale.factor);
        let [q_scales, k_scales, v_scales] = self.scales.expect("split operands have scales");
        let rows = q_scales.of_rows(self.start);
        let diagonal = self.start / KEYS + warpgroup(k);
        k.range(first, end.min(diagonal + 1), 1, |tile| {
            let key = tile * KEYS;
            let (keys_stage, keys) = smem.wait();
            multiply_transposed(k, config.operands, [queries, keys], &scores);
            let columns = k_scales.of_columns(key, scores.len());
            let value_scales = v_scales.of_columns(key, scores.len());
            k.wgmma_wait_group(0);
            smem.release(keys_stage.index);
            for_each(&scores, |score, [row, column], j| {
                score.mul_assign(rows[row] * columns[j][column]);
            });
            k.when(tile.eq(diagonal), || {
                apply_causal_mask(k, [self.start, key], true, &scores, f32::NEG_INFINITY);
            });
            self.bounds.apply(k, key, KEYS, &[&scores], f32::NEG_INFINITY);
            softmax.update(&scores, &out);
            for_each(&scores, |prob, [_, column], j| prob.mul_assign(value_scales[j][column]));
            let probs = SplitRows::new(k, config.target, &scores);
            let (values_stage, values) = smem.wait();
            probs.multiply(k, values, config.head_dim, &out);
            smem.release(values_stage.index);
            let next = tile + smem.pairs();
            k.when(smem.copies & next.lt(end), || self.copy(smem, next * KEYS));
        });
        self.finish(k, config, &softmax, &out);
    }
}
