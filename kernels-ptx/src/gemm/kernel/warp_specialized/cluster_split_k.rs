//! Split-K in a cluster.
//!
//! The blocks of a cluster multiply consecutive ranges of K of the same tile. The stages of K are
//! divided as evenly as possible, in whole stages; if there are fewer stages than blocks, the last
//! blocks have none. The first block, the leader, receives the accumulators of the others in its
//! stages over distributed shared memory, adds them in ascending order, and runs the epilogue.
//!
//! Three barriers order the accesses to the stages of the leader:
//!
//! 1. a barrier of the cluster, when all blocks have multiplied: the stages may be overwritten,
//! 2. a barrier of the cluster, when all accumulators are stored: they may be read,
//! 3. a barrier of the block, when they are added: the producer may load the next tile.
//!
//! Only arrivals after stores need `.release`, for which `ptxas` emits a fence of the whole GPU.

use retrograph_ptx::build::{Kernel, Value};

use super::{WarpSpecializedKernel, synchronize_cluster};
use crate::gemm::accumulator::AccFragment;
use crate::gemm::mainloop::wgmma;
use crate::gemm::params::GemmParams;
use crate::primitives::tma_pipeline::TmaPipeline;

/// The range of K that a block of a cluster multiplies. Indices count over all products of a sum.
pub(super) struct ShareOfK<'k> {
    start: Value<'k, u32>,
    end: Value<'k, u32>,
    /// First index of the next product.
    next_product: Value<'k, u32>,
}

impl<'k> ShareOfK<'k> {
    /// Length, a multiple of a stage.
    pub(super) fn length(&self) -> Value<'k, u32> {
        self.end - self.start
    }

    /// The range of the next product, of length `k_len`, that belongs to the share: start and end.
    pub(super) fn of_next_product(
        &mut self,
        k_len: Value<'k, u32>,
    ) -> (Value<'k, u32>, Value<'k, u32>) {
        let first = self.next_product;
        self.next_product = first + whole_stages(k_len);
        let within = |index: Value<'k, u32>| index.max(first).min(first + k_len) - first;
        (within(self.start), within(self.end))
    }
}

/// `k_len` rounded up to whole stages.
fn whole_stages(k_len: Value<'_, u32>) -> Value<'_, u32> {
    (k_len + (wgmma::TILE_K - 1)) & !(wgmma::TILE_K - 1)
}

/// Total length of K over the first and all added products. All but the last are padded to whole
/// stages.
pub(super) fn contraction<'k>(params: &GemmParams<'k>) -> Value<'k, u32> {
    let added = params.added.iter().flatten();
    added.fold(params.k, |sum, product| whole_stages(sum) + product.k)
}

impl WarpSpecializedKernel {
    /// The range of K that this block multiplies; `None` if it multiplies all of K.
    pub(super) fn share_of_k<'k>(self, params: &GemmParams<'k>) -> Option<ShareOfK<'k>> {
        if self.cluster.k == 1 {
            return None;
        }
        let (k, blocks) = (params.m.kernel(), self.cluster.k);
        let stages = whole_stages(contraction(params)) / wgmma::TILE_K;
        let (each, rest) = (stages / blocks, stages & (blocks - 1));
        assert!(blocks.is_power_of_two(), "the rest is a mask");
        let start = |rank: Value<'k, u32>| (rank * each + rank.min(rest)) * wgmma::TILE_K;
        let rank = k.cluster_ctarank();
        Some(ShareOfK { start: start(rank), end: start(rank + 1), next_product: k.constant(0) })
    }

    /// Adds the accumulators of all blocks of the cluster in the leader. Consumers do it.
    pub(super) fn add_shares<'k>(self, pipeline: &TmaPipeline<'k>, acc: &[AccFragment<'k>]) {
        const VECTOR: u32 = 4;
        let k = acc[0][0].get().kernel();
        let (rank, thread) = (k.cluster_ctarank(), k.tid_x() * VECTOR);
        // The fragments of a block: vectors of all threads, fragment by fragment.
        let fragment_words = self.consumer_threads() * VECTOR;
        let block_words = fragment_words * acc.len() as u32;
        let words = (self.cluster.k - 1) * block_words;
        assert!(words <= self.stages * self.stage_words(), "accumulators fit into the stages");
        let memory = pipeline.stage(k.constant(0)).smem.reinterpret::<f32>().at(thread);
        synchronize_cluster_relaxed(&k);
        k.when(rank.ne(0), || {
            let to = memory.at((rank - 1) * block_words).in_block(k.constant(0));
            for (j, fragment) in (0u32..).zip(acc) {
                to.store_vec4(j * fragment_words, fragment.map(|acc| acc.get()));
            }
        });
        synchronize_cluster(&k);
        self.in_leader(&k, || {
            k.range(0, words, block_words, |first| {
                let from = memory.at(first);
                for (j, fragment) in (0u32..).zip(acc) {
                    let share = from.load_vec4(j * fragment_words);
                    fragment.iter().zip(share).for_each(|(acc, share)| acc.add_assign(share));
                }
            });
            // The copies of the next tile overwrite the accumulators.
            k.fence_proxy_async();
        });
        k.barrier();
    }

    /// Waits until consumers have added the accumulators of all blocks. The producer does it.
    pub(super) fn wait_for_sum(self, k: &Kernel<'_>) {
        synchronize_cluster_relaxed(k);
        synchronize_cluster_relaxed(k);
        k.barrier();
    }

    /// Runs `body` in the block that writes the tile.
    pub(super) fn in_leader(self, k: &Kernel<'_>, body: impl FnOnce()) {
        match self.cluster.k {
            1 => body(),
            _ => k.when(k.cluster_ctarank().eq(0), body),
        }
    }
}

/// Waits for all threads of the cluster. Does not make writes visible to other blocks.
fn synchronize_cluster_relaxed(k: &Kernel<'_>) {
    k.barrier_cluster_arrive_relaxed();
    k.barrier_cluster_wait();
}
