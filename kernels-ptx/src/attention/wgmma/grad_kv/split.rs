//! The gradients of k and v from split operands, in tiles of 32 queries.

use std::f32::consts::LOG2_E;

use retrograph_ptx::build::Kernel;

use super::{Config, Params, for_each_element, start_product};
use crate::attention::wgmma::smem::Smem;
use crate::attention::wgmma::split::SplitRows;
use crate::attention::wgmma::warpgroup;
use crate::primitives::mma::{acc_row, fragment_column};
use crate::primitives::tma_pipeline::BOX;

/// Queries of a tile.
pub(super) const QUERIES: u32 = 32;
/// Tiles of queries and gradients of the output in flight.
pub(super) const STAGES: u32 = 6;
/// Columns of a gradient that are computed at a time: registers already hold both gradients.
const COLUMNS: u32 = BOX;

impl<'k> Params<'k> {
    pub(super) fn compute_split(&self, k: &Kernel<'k>, config: Config, smem: &Smem<'k>) {
        let position = self.copy_first(smem, QUERIES);
        let [grad_k, grad_v] = [(); 2].map(|()| acc_row(k, config.head_dim));
        let [scores, grads] = [(); 2].map(|()| acc_row(k, QUERIES));
        let scale_log2 = self.scale * LOG2_E;
        let [q_scales, k_scales, v_scales, grad_out_scales] = self.scales;
        let [k_rows, v_rows] = [k_scales, v_scales].map(|scales| scales.of_rows(self.start));
        let [keys, values] = smem.wait_resident(k.constant(0), warpgroup(k));
        self.for_each_tile(k, QUERIES, |query, lse_delta| {
            let products = [(keys, &scores[..]), (values, &grads)];
            let [(q_stage, q), (grad_out_stage, grad_out)] =
                products.map(|(tile, acc)| start_product(k, config, smem, tile, acc));
            let stats = lse_delta.at((query + fragment_column(k)) << 1);
            let [query_scales, out_scales] =
                [q_scales, grad_out_scales].map(|scales| scales.of_columns(query, scores.len()));
            k.wgmma_wait_group(1);
            for_each_element(stats, &scores, |score, [lse, _], [j, i]| {
                let factor = k_rows[i / 2] * query_scales[j][i % 2];
                score.update(|score| (score * factor).fma(scale_log2, -lse).exp2_ftz());
            });
            k.wgmma_wait_group(0);
            for_each_element(stats, &grads, |grad, [_, delta], [j, i]| {
                let (prob, factor) = (scores[j][i], v_rows[i / 2] * out_scales[j][i % 2]);
                grad.update(|grad| grad.fma(factor, -delta) * prob.get() * query_scales[j][i % 2]);
                prob.mul_assign(out_scales[j][i % 2]);
            });
            self.mask(query, QUERIES, &[&scores, &grads]);
            let probs = SplitRows::new(k, config.target, &scores);
            probs.multiply(k, grad_out, COLUMNS, &grad_v);
            smem.release(grad_out_stage.index);
            let grads = SplitRows::new(k, config.target, &grads);
            grads.multiply(k, q, COLUMNS, &grad_k);
            smem.release(q_stage.index);
            k.when(smem.copies, || self.copy_next(smem, QUERIES, &position));
        });
        self.grad_k.write_pairs(config.target, self.start, Some(self.scale), &grad_k);
        self.grad_v.write_pairs(config.target, self.start, None, &grad_v);
    }
}
