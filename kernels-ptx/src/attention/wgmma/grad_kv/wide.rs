//! The gradients of k and v of heads of more than 128 elements: registers hold one gradient of 64
//! keys, so a block has 64. The first warpgroup computes the probabilities and the gradient of v,
//! and writes the factors of the score gradients to shared memory; the second one computes the
//! score gradients and the gradient of k.

use retrograph_ptx::build::{Kernel, Shared, Value, Var};

use super::{Config, Params, QUERIES, for_each_element, for_each_fragment};
use crate::attention::mma::pack_fragments;
use crate::attention::score_scale::prob;
use crate::attention::wgmma::smem::Smem;
use crate::attention::wgmma::{multiply, multiply_transposed, warpgroup};
use crate::primitives::mma::{acc_row, fragment_column};
use crate::primitives::wgmma::WARPGROUP_THREADS;

/// Tiles of queries and gradients of the output in flight.
pub(super) const STAGES: u32 = 4;

impl<'k> Params<'k> {
    pub(super) fn compute_wide(&self, k: &Kernel<'k>, config: Config, smem: &Smem<'k>) {
        let position = self.copy_first(smem, QUERIES);
        let grad = acc_row(k, config.head_dim);
        let acc = acc_row(k, QUERIES);
        let log2 = self.score_scale.log2();
        let (warpgroup, factors_smem) = (warpgroup(k), GradFactors::new(k));
        let is_first = warpgroup.eq(0);
        // Keys for the first warpgroup, values for the second one.
        let resident = smem.wait_resident_tile(warpgroup);
        // Whether there is a previous tile, and its stages.
        let is_later = k.var(0u32);
        let previous = [(); 2].map(|()| k.var(0u32));
        self.for_each_tile(k, QUERIES, |query, lse_delta| {
            let [q, grad_out] = [(); 2].map(|()| smem.wait().0.index);
            let scored = smem.streamed_tile(is_first.select(q, grad_out));
            multiply_transposed(k, config.operands, [resident, scored], &acc);
            // The product at the end of the previous tile overlaps with this one.
            k.wgmma_wait_group(1);
            k.when(is_later.get().ne(0), || {
                for stage in previous {
                    smem.release(stage.get());
                }
                k.when(smem.copies, || self.copy_next(smem, QUERIES, &position));
            });
            is_later.set(1);
            previous[0].set(q);
            previous[1].set(grad_out);
            let stats = lse_delta.at((query + fragment_column(k)) << 1);
            k.wgmma_wait_group(0);
            k.when(is_first, || {
                self.score_scale.apply_tanh(&acc);
                for_each_fragment(stats, &acc, |fragment, stats, j| {
                    let factors = [0, 1, 2, 3].map(|i: usize| {
                        let ([lse, _], t) = (stats[i % 2], fragment[i].get());
                        fragment[i].update(|t| prob(t, log2, lse));
                        self.score_scale.backward(fragment[i].get(), t)
                    });
                    factors_smem.write(j, factors);
                });
                self.mask(query, QUERIES, &[&acc]);
            });
            // Outside of the branches: a barrier is one instruction for all threads of a block.
            k.barrier();
            k.when(!is_first, || {
                let factors = factors_smem.read(acc.len());
                for_each_element(stats, &acc, |grad, [_, delta], [j, i]| {
                    grad.update(|grad| (grad - delta) * factors[j][i]);
                });
                self.mask(query, QUERIES, &[&acc]);
            });
            // The probabilities for the gradient of v, the score gradients for the gradient of k.
            let fragments = pack_fragments(config.target, &acc);
            let multiplied = smem.streamed_tile(is_first.select(grad_out, q));
            multiply(k, &fragments, multiplied, &grad);
            factors_smem.advance();
        });
        k.wgmma_wait_group(0);
        k.when_else(
            is_first,
            || self.grad_v.write_pairs(config.target, self.lane_start, None, &grad),
            || self.grad_k.write_pairs(config.target, self.lane_start, Some(self.scale), &grad),
        );
    }
}

/// The factors of the score gradients in shared memory: probabilities, times the derivative of the
/// cap. Both warpgroups have the same fragments, so a thread reads what one thread has written. Of
/// the two buffers, one is written while the other one may still be read, so one barrier per tile
/// is enough.
struct GradFactors<'k> {
    /// The fragments of this thread in the first buffer.
    smem: Shared<'k, f32>,
    /// The element of the buffer of the current tile.
    buffer: Var<'k, u32>,
}

impl<'k> GradFactors<'k> {
    /// Elements from one fragment of a thread to the next.
    const STRIDE: u32 = WARPGROUP_THREADS * 4;
    /// Elements of a buffer.
    const BUFFER: u32 = QUERIES / 8 * Self::STRIDE;

    fn new(k: &Kernel<'k>) -> Self {
        let smem = k.shared("grad_factors", (2 * Self::BUFFER) as usize);
        let thread = k.tid_x() & (WARPGROUP_THREADS - 1);
        Self { smem: smem.at(thread * 4), buffer: k.var(0u32) }
    }

    /// Switches to the other buffer.
    fn advance(&self) {
        self.buffer.update(|buffer| buffer ^ Self::BUFFER);
    }

    /// Writes fragment `j`.
    fn write(&self, j: usize, factors: [Value<'k, f32>; 4]) {
        self.smem.at(self.buffer.get()).store_vec4(j as u32 * Self::STRIDE, factors);
    }

    /// Reads `count` fragments.
    fn read(&self, count: usize) -> Vec<[Value<'k, f32>; 4]> {
        let smem = self.smem.at(self.buffer.get());
        (0..count as u32).map(|j| smem.load_vec4(j * Self::STRIDE)).collect()
    }
}
