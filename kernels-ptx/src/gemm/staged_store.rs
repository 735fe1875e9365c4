//! Writes results of a warpgroup in bf16 from stages of the pipeline.
//!
//! A stage holds boxes of 64 columns of several results, or of the inputs that they replace. The
//! stage belongs to the consumers until they release it, which they do while the next one is
//! written: the bulk stores of one stage overlap the computation of the next.

use retrograph_kernel_abi::gemm::TENSOR_MAP_BOX;
use retrograph_ptx::build::{Kernel, NamedBarrier, Pred, Shared, TensorMapParam, Value, Var};

use crate::primitives::swizzle::LINE_WORDS;
use crate::primitives::tma_pipeline::{PipelineState, Stage, TmaPipeline};
use crate::primitives::wgmma::WARPGROUP_THREADS;

/// Fragments of a box.
pub(super) const BOX_FRAGMENTS: usize = TENSOR_MAP_BOX[0] as usize / 8;
/// No stage.
const NONE: u32 = u32::MAX;

/// A box in shared memory, with the tensor map of the result that it is stored to.
pub(super) type ResultBox<'k> = (TensorMapParam<'k>, Shared<'k, u32>);

/// The stores of one warpgroup.
#[derive(Clone, Copy)]
pub(super) struct StagedStore<'k> {
    kernel: Kernel<'k>,
    pipeline: TmaPipeline<'k>,
    state: PipelineState<'k>,
    barrier: NamedBarrier<'k>,
    /// Whether this thread starts the stores.
    leader: Pred<'k>,
    /// The stage that was written last and is not released, or [`NONE`].
    written: Var<'k, u32>,
}

impl<'k> StagedStore<'k> {
    /// The stores of the warpgroup with index `warpgroup`, from the stages after `state`.
    pub(super) fn new(
        k: &Kernel<'k>,
        (pipeline, state): (&TmaPipeline<'k>, PipelineState<'k>),
        warpgroup: Value<'k, u32>,
    ) -> Self {
        let barrier = NamedBarrier { id: warpgroup + 1, threads: WARPGROUP_THREADS };
        let leader = (k.tid_x() & (WARPGROUP_THREADS - 1)).eq(0);
        let written = k.var(NONE);
        Self { kernel: *k, pipeline: *pipeline, state, barrier, leader, written }
    }

    /// Waits for the next stage. Every stage is passed to [`Self::store`].
    pub(super) fn next(&self) -> Stage<'k> {
        self.pipeline.wait_full(self.state)
    }

    /// Stores boxes of `stage` at `origin` (column, row, plane), of which only the columns below
    /// `end` are written. `words` gives the words of the two fragments of a pair for each result;
    /// they may be computed from the same places of the boxes.
    pub(super) fn store<const N: usize>(
        &self,
        (stage, boxes): (Stage<'k>, [ResultBox<'k>; N]),
        ([column, row, plane], end): ([Value<'k, u32>; 3], Value<'k, u32>),
        words: impl Fn(usize) -> [[[Value<'k, u32>; 2]; 2]; N],
    ) {
        let k = self.kernel;
        for pair in 0..BOX_FRAGMENTS / 2 {
            // A branch, so that the compiler computes one pair after the other: it would need more
            // registers than there are to interleave them.
            k.when((column + pair as u32 * 16).lt(end), || {
                for ([[a, b], [x, y]], (_, rows)) in words(pair).into_iter().zip(&boxes) {
                    k.stmatrix_x4(matrices(&k, *rows, pair), [a, b, x, y]);
                }
            });
        }
        k.fence_proxy_async();
        self.release();
        k.when(self.leader, || {
            for (map, rows) in boxes {
                k.cp_async_bulk_tensor_3d_store(map, (column, row, plane), rows);
            }
            k.cp_async_bulk_commit_group();
        });
        self.written.set(stage.index);
    }

    /// Releases the stage that was written last as soon as its stores have read it, and
    /// synchronizes the warpgroup.
    fn release(&self) {
        let (k, written) = (self.kernel, self.written.get());
        k.when(self.leader, || k.cp_async_bulk_wait_group_read(0));
        k.bar_sync(self.barrier, None);
        k.when(written.ne(NONE) & k.lane().eq(0), || self.pipeline.release(written));
    }

    /// Releases the last stage of a tile, if there was one.
    pub(super) fn release_last(&self) {
        self.kernel.when(self.written.get().ne(NONE), || self.release());
        self.written.set(NONE);
    }

    /// Waits until all stores have read their stages.
    pub(super) fn wait(&self) {
        let k = self.kernel;
        k.when(self.leader, || k.cp_async_bulk_wait_group_read(0));
    }
}

/// Loads a pair of fragments of a warp, as words of bf16, from a box of the warpgroup's rows.
pub(super) fn load_pair<'k>(
    k: &Kernel<'k>,
    rows: Shared<'k, u32>,
    pair: usize,
) -> [[Value<'k, u32>; 2]; 2] {
    let [a, b, x, y] = matrices(k, rows, pair).ldmatrix_x4(false);
    [[a, b], [x, y]]
}

/// Where this lane addresses the four 8 × 8 matrices of fragments 2·`pair` and 2·`pair` + 1 of its
/// warp, in a box with the 128-byte swizzle. Lanes 0 to 15 address the rows of the left matrices.
pub(super) fn matrices<'k>(k: &Kernel<'k>, rows: Shared<'k, u32>, pair: usize) -> Shared<'k, u32> {
    let lane = k.lane();
    let row = (k.warp() & 3) * 16 + (lane & 15);
    let chunk = ((lane >> 4) + pair as u32 * 2) ^ (lane & 7);
    rows.at(row * LINE_WORDS + chunk * 4)
}
