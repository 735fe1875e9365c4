//! The gradient of q of heads of more than 128 elements. Shared memory has three stages besides
//! the resident tiles: two for keys, which the product at the end of a tile still reads, and one
//! for values.

use retrograph_ptx::build::Kernel;

use super::{Config, KEYS, Params};
use crate::attention::mma::pack_fragments;
use crate::attention::wgmma::smem::{Smem, SmemLayout};
use crate::attention::wgmma::{multiply, multiply_transposed, warpgroup};
use crate::primitives::mma::acc_row;
use crate::primitives::tma_pipeline::{PipelineState, Producer};

/// Tiles of keys in flight.
pub(super) const KEY_STAGES: u32 = 2;

/// The stage of the values.
pub(super) fn values_layout(config: Config) -> SmemLayout {
    let tile = config.tile(KEYS);
    let producer = Producer::Warp;
    SmemLayout { terms: 1, resident: tile, resident_count: 0, streamed: tile, stages: 1, producer }
}

impl<'k> Params<'k> {
    pub(super) fn compute_wide(&self, k: &Kernel<'k>, config: Config, smem: [&Smem<'k>; 2]) {
        let [keys_smem, values_smem] = smem;
        let [first, end] = self.tiles(KEYS);
        let copies = keys_smem.copies;
        k.when(copies, || {
            keys_smem.copy_resident(&[self.q, self.grad_out], self.start);
            k.range(first, end.min(first + KEY_STAGES), 1, |tile| {
                keys_smem.copy(self.keys, tile * KEYS);
            });
            k.when(first.lt(end), || values_smem.copy(self.values, first * KEYS));
        });
        let (keys_state, values_state) = (PipelineState::new(k), PipelineState::new(k));
        let grad_q = acc_row(k, config.head_dim);
        let (scores, grads) = (acc_row(k, KEYS), acc_row(k, KEYS));
        let log2 = self.score_scale.log2();
        let stats = self.stats(k);
        let [queries, grad_out] = keys_smem.wait_resident(0, warpgroup(k));
        let previous = k.var(0u32);
        k.range(first, end, 1, |tile| {
            let next = tile + 1;
            let (keys_stage, keys) = keys_smem.wait(keys_state);
            multiply_transposed(k, config.operands, [queries, keys], &scores);
            let (values_stage, values) = values_smem.wait(values_state);
            multiply_transposed(k, config.operands, [grad_out, values], &grads);
            k.wgmma_wait_group(2);
            k.when(tile.ne(first), || keys_smem.release(previous.get()));
            k.wgmma_wait_group(1);
            self.grad_factors(&stats, log2, &scores);
            // The branch keeps ptxas from moving the wait before the factors.
            let later = tile.ne(first) & next.lt(end);
            k.when(copies & later, || keys_smem.copy(self.keys, next * KEYS));
            previous.set(keys_stage.index);
            k.wgmma_wait_group(0);
            values_smem.release(values_stage.index);
            self.score_grads(k, &stats, tile, [&scores, &grads]);
            k.when(copies & next.lt(end), || values_smem.copy(self.values, next * KEYS));
            let grads = pack_fragments(config.target, &grads);
            multiply(k, &grads, keys, &grad_q);
        });
        k.wgmma_wait_group(0);
        self.grad_q.write_pairs(config.target, self.start, Some(self.scale), &grad_q);
    }
}
