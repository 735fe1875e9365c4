//! The gradient of q of heads of more than 128 elements. Shared memory has three stages besides
//! the resident tiles: two for keys, which the product at the end of a tile still reads, and one
//! for values.

use retrograph_ptx::build::Kernel;

use super::{Config, KEYS, Work};
use crate::attention::mma::pack_fragments;
use crate::attention::wgmma::smem::{PlacedTile, Smem, SmemLayout};
use crate::attention::wgmma::{multiply, multiply_transposed};
use crate::primitives::mma::acc_row;
use crate::primitives::tma_pipeline::Producer;

/// Tiles of keys in flight.
pub(super) const KEY_STAGES: u32 = 2;

/// The stage of the values.
pub(super) fn values_layout(config: Config) -> SmemLayout {
    let tile = config.tile(KEYS);
    let producer = Producer::Warp;
    SmemLayout { terms: 1, resident: tile, resident_count: 0, streamed: tile, stages: 1, producer }
}

impl<'k> Work<'k> {
    /// Copies the first tile of keys and of values. The last product of the tile before may still
    /// read the keys in the other stage.
    pub(super) fn prefetch_wide(&self, keys_smem: &Smem<'k>, values_smem: &Smem<'k>) {
        let [first, _] = self.tiles(KEYS);
        keys_smem.copy(self.keys, first * KEYS);
        values_smem.copy(self.values, first * KEYS);
    }

    pub(super) fn compute_wide(
        &self,
        k: &Kernel<'k>,
        config: Config,
        [keys_smem, values_smem]: [&Smem<'k>; 2],
        [queries, grad_out]: [PlacedTile<'k>; 2],
        next: impl FnOnce(),
    ) {
        let [first, end] = self.tiles(KEYS);
        let copies = keys_smem.copies;
        let grad_q = acc_row(k, config.head_dim);
        let (scores, grads) = (acc_row(k, KEYS), acc_row(k, KEYS));
        let log2 = self.score_scale.log2();
        let stats = self.stats(k);
        let previous = k.var(0u32);
        k.range(first, end, 1, |tile| {
            let later = tile + 1;
            let (keys_stage, keys) = keys_smem.wait();
            multiply_transposed(k, config.operands, [queries, keys], &scores);
            let (values_stage, values) = values_smem.wait();
            multiply_transposed(k, config.operands, [grad_out, values], &grads);
            k.wgmma_wait_group(2);
            k.when(tile.ne(first), || keys_smem.release(previous.get()));
            k.wgmma_wait_group(1);
            self.grad_factors(&stats, log2, &scores);
            // The branch keeps ptxas from moving the wait before the factors.
            k.when(copies & later.lt(end), || keys_smem.copy(self.keys, later * KEYS));
            previous.set(keys_stage.index);
            k.wgmma_wait_group(0);
            values_smem.release(values_stage.index);
            self.score_grads(k, &stats, tile, [&scores, &grads]);
            k.when(copies & later.lt(end), || values_smem.copy(self.values, later * KEYS));
            let grads = pack_fragments(config.target, &grads);
            multiply(k, &grads, keys, &grad_q);
        });
        next();
        k.wgmma_wait_group(0);
        keys_smem.release(previous.get());
        self.grad_q.write_pairs(config.target, self.start, Some(self.scale), &grad_q);
    }
}
