//! Writes the bf16 results of a warpgroup from stages of the pipeline.
//!
//! A stage holds boxes of 64 columns of several results, or of the inputs that they replace.
//! Consumers release a stage only after they have written the next one, so the bulk stores of one
//! stage overlap the computation of the next.

use retrograph_kernel_abi::gemm::TENSOR_MAP_BOX;
use retrograph_ptx::build::{Kernel, NamedBarrier, Pred, Shared, TensorMapParam, Value, Var};

use crate::primitives::swizzle::LINE_WORDS;
use crate::primitives::tma_pipeline::{PipelineState, Stage, TmaPipeline};
use crate::primitives::wgmma::WARPGROUP_THREADS;

/// Fragments per row of a box.
pub(super) const BOX_FRAGMENTS: usize = TENSOR_MAP_BOX[0] as usize / 8;
/// No stage.
const NONE: u32 = u32::MAX;

/// A result.
#[derive(Clone, Copy)]
pub(super) struct ResultBox<'k> {
    pub(super) map: TensorMapParam<'k>,
    /// The box in shared memory that is stored to it.
    pub(super) rows: Shared<'k, u32>,
    /// Whether it is stored; `None` for always.
    pub(super) kept: Option<Pred<'k>>,
}

/// The stores of one warpgroup.
#[derive(Clone, Copy)]
pub(super) struct StagedStore<'k> {
    kernel: Kernel<'k>,
    pipeline: TmaPipeline<'k>,
    state: PipelineState<'k>,
    barrier: NamedBarrier<'k>,
    /// Whether this thread issues the bulk stores.
    leader: Pred<'k>,
    /// The stage that was written last and is not released yet, or [`NONE`].
    written: Var<'k, u32>,
}

impl<'k> StagedStore<'k> {
    /// The stores of warpgroup `warpgroup`, from the stages after `state`.
    pub(super) fn new(
        k: &Kernel<'k>,
        pipeline: &TmaPipeline<'k>,
        state: PipelineState<'k>,
        warpgroup: Value<'k, u32>,
    ) -> Self {
        let barrier = NamedBarrier { id: warpgroup + 1, threads: WARPGROUP_THREADS };
        let leader = (k.tid_x() & (WARPGROUP_THREADS - 1)).eq(0);
        let written = k.var(NONE);
        Self { kernel: *k, pipeline: *pipeline, state, barrier, leader, written }
    }

    /// Waits for the next stage, which must be passed to [`Self::store`].
    pub(super) fn next(&self) -> Stage<'k> {
        self.pipeline.wait_full(self.state)
    }

    /// Fills boxes of `stage` and stores them at column, row and plane. Skips columns from `end`
    /// on. `words` returns the words of a pair of fragments for each result; it may read them from
    /// the same positions of the boxes.
    pub(super) fn store<const N: usize>(
        &self,
        stage: Stage<'k>,
        boxes: [ResultBox<'k>; N],
        [column, row, plane]: [Value<'k, u32>; 3],
        end: Value<'k, u32>,
        words: impl Fn(usize) -> [[[Value<'k, u32>; 2]; 2]; N],
    ) {
        let k = self.kernel;
        for pair in 0..BOX_FRAGMENTS / 2 {
            // The branch keeps the compiler from interleaving pairs, which would need too many
            // registers.
            k.when((column + pair as u32 * 16).lt(end), || {
                for ([[a, b], [x, y]], result) in words(pair).into_iter().zip(&boxes) {
                    k.stmatrix_x4(matrices(&k, result.rows, pair), [a, b, x, y]);
                }
            });
        }
        k.fence_proxy_async();
        self.release();
        k.when(self.leader, || {
            for ResultBox { map, rows, kept } in boxes {
                let store = || k.cp_async_bulk_tensor_3d_store(map, [column, row, plane], rows);
                match kept {
                    Some(kept) => k.when(kept, store),
                    None => store(),
                }
            }
            k.cp_async_bulk_commit_group();
        });
        self.written.set(stage.index);
    }

    /// Waits until the stores of the last written stage have read it, synchronizes the warpgroup
    /// and releases the stage.
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

/// The address of this lane for `ldmatrix` or `stmatrix` of fragments 2·`pair` and 2·`pair` + 1 of
/// its warp, in a box with the 128-byte swizzle. Lanes 0 to 15 address the rows of the left
/// matrices.
pub(super) fn matrices<'k>(k: &Kernel<'k>, rows: Shared<'k, u32>, pair: usize) -> Shared<'k, u32> {
    let lane = k.lane();
    let row = (k.warp() & 3) * 16 + (lane & 15);
    let chunk = ((lane >> 4) + pair as u32 * 2) ^ (lane & 7);
    rows.at(row * LINE_WORDS + chunk * 4)
}
