//! Pipeline of stages in shared memory that a producer fills by TMA and consumer warps read.
//!
//! Each stage has two `mbarrier`s. *Full* completes when its bytes have arrived; *empty* completes
//! when every consumer warp has released the stage. Both are used again in each round over the
//! stages; the parity of the phase tells rounds apart. Stages are filled in order, and may be
//! released in any order.

use retrograph_kernel_abi::gemm::TENSOR_MAP_BOX;
use retrograph_ptx::build::{Arg, Kernel, Pred, Shared, TensorMapParam, Value, Var};

use super::smem_tile::SmemTile;
use super::swizzle::LINE_WORDS;

/// Rows, and columns, of a box of 16-bit elements. A row is a line of 128 bytes.
pub(crate) const BOX: u32 = TENSOR_MAP_BOX[1];
const _: () = assert!(TENSOR_MAP_BOX[0] == BOX, "boxes are square");
/// Words of a box.
pub(crate) const BOX_WORDS: u32 = BOX * LINE_WORDS;

/// Who fills the stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Producer {
    /// All lanes of a warp together; one of them starts the copies. ptxas then keeps their operands
    /// in uniform registers.
    Warp,
    /// One thread. ptxas does not know that it is alone, so each copy is a loop over the lanes. It
    /// needs no uniform registers, which a kernel with many live registers may not have.
    Thread,
}

impl Producer {
    /// Whether this thread is part of the producer in warp `warp`.
    pub(crate) fn is_here<'k>(self, k: &Kernel<'k>, warp: u32) -> Pred<'k> {
        match self {
            // The broadcast tells the compiler that the warp is uniform.
            Self::Warp => k.shfl_idx(k.warp(), 0).eq(warp),
            Self::Thread => k.tid_x().eq(warp * 32),
        }
    }

    /// Runs `body` in one lane of the producer.
    pub(crate) fn in_one_lane(self, k: &Kernel<'_>, body: impl FnOnce()) {
        match self {
            Self::Warp => k.when(k.elect_sync(), body),
            Self::Thread => body(),
        }
    }
}

/// The stages in shared memory, and their barriers.
#[derive(Clone, Copy)]
pub(crate) struct TmaPipeline<'k> {
    kernel: Kernel<'k>,
    producer: Producer,
    stages: u32,
    stage_words: u32,
    /// Blocks of the cluster that fill each other's stages.
    cluster: u32,
    smem: Shared<'k, u32>,
    full: Shared<'k, u64>,
    empty: Shared<'k, u64>,
}

/// The stage that a thread uses next, and the parity of its phase.
#[derive(Clone, Copy)]
pub(crate) struct PipelineState<'k> {
    stage: Var<'k, u32>,
    parity: Var<'k, u32>,
}

/// A stage that a thread uses.
#[derive(Clone, Copy)]
pub(crate) struct Stage<'k> {
    pub(crate) index: Value<'k, u32>,
    pub(crate) smem: Shared<'k, u32>,
}

impl<'k> PipelineState<'k> {
    pub(crate) fn new(k: &Kernel<'k>) -> Self {
        Self { stage: k.var(0u32), parity: k.var(0u32) }
    }

    /// Advances to the next one of `stages` stages.
    fn advance(self, stages: u32) {
        let next = self.stage.get() + 1;
        let wraps = next.eq(stages);
        self.stage.set(wraps.select(0, next));
        self.parity.update(|parity| parity ^ wraps.select(1, 0));
    }
}

/// Words of the barriers of `stages` stages.
pub(crate) const fn barrier_words(stages: u32) -> u32 {
    stages * 4
}

impl<'k> TmaPipeline<'k> {
    /// The pipeline with stages at `smem`, aligned for swizzling, and barriers at `barriers`.
    pub(crate) fn new(
        k: &Kernel<'k>,
        producer: Producer,
        stages: u32,
        stage_words: u32,
        smem: Shared<'k, u32>,
        barriers: Shared<'k, u64>,
    ) -> Self {
        let empty = barriers.offset(i64::from(stages));
        Self { kernel: *k, producer, stages, stage_words, cluster: 1, smem, full: barriers, empty }
    }

    /// This pipeline for clusters of `cluster` blocks that fill each other's stages.
    pub(crate) fn of_cluster(self, cluster: u32) -> Self {
        Self { cluster, ..self }
    }

    /// Initializes the barriers for `consumers` consumer warps. One thread does it; a fence of
    /// initializations and a barrier of the block must follow.
    pub(crate) fn init(&self, consumers: u32) {
        let k = self.kernel;
        for stage in 0..i64::from(self.stages) {
            k.mbarrier_init(self.full.offset(stage), 1);
            k.mbarrier_init(self.empty.offset(stage), consumers * self.cluster);
        }
    }

    /// Fills the next stage as soon as it is empty. `copy` starts copies of `bytes` bytes that
    /// complete at the given barrier. The producer does it.
    pub(crate) fn fill(
        &self,
        state: PipelineState<'k>,
        bytes: impl Arg<'k, u32>,
        copy: impl FnOnce(Stage<'k>, Shared<'k, u64>),
    ) {
        let k = self.kernel;
        let (index, parity) = (state.stage.get(), state.parity.get());
        k.mbarrier_wait_parity(self.empty.at(index), parity ^ 1);
        let full = self.full.at(index);
        self.producer.in_one_lane(&k, || {
            k.mbarrier_arrive_expect_tx(full, bytes);
            copy(self.stage(index), full);
        });
        state.advance(self.stages);
    }

    /// Waits until the next stage is full, and returns it.
    pub(crate) fn wait_full(&self, state: PipelineState<'k>) -> Stage<'k> {
        let (index, parity) = (state.stage.get(), state.parity.get());
        self.kernel.mbarrier_wait_parity(self.full.at(index), parity);
        state.advance(self.stages);
        self.stage(index)
    }

    /// Tells the producer that this warp has read stage number `stage`. One lane of each consumer
    /// warp does it.
    pub(crate) fn release(&self, stage: Value<'k, u32>) {
        let (k, empty) = (self.kernel, self.empty.at(stage));
        match self.cluster {
            1 => k.mbarrier_arrive(empty),
            blocks => {
                for rank in 0..blocks {
                    k.mbarrier_arrive_cluster(empty, k.constant(rank));
                }
            }
        }
    }

    /// Stage number `index`.
    pub(crate) fn stage(&self, index: Value<'k, u32>) -> Stage<'k> {
        Stage { index, smem: self.smem.at(index * self.stage_words) }
    }
}

/// The source of a copy.
#[derive(Clone, Copy)]
pub(crate) struct TmaSource<'k> {
    pub(crate) map: TensorMapParam<'k>,
    pub(crate) plane: Value<'k, u32>,
    /// The mask of the blocks of the cluster that receive the copy; `None` for only this block.
    pub(crate) blocks: Option<u16>,
}

/// As [`copy_boxes`], in boxes of [`BOX`] × [`BOX`] elements.
pub(crate) fn copy_tile<'k>(
    tile: SmemTile,
    source: TmaSource<'k>,
    to: Shared<'k, u32>,
    full: Shared<'k, u64>,
    position: impl Fn([u32; 2]) -> [Value<'k, u32>; 2],
) {
    copy_boxes(tile, BOX, source, to, full, position);
}

/// Starts to copy a swizzled tile of 16-bit elements from `source` to `to`, in boxes of `box_rows`
/// × [`BOX`] elements. `position` maps a column and row of the tile to a column and row of the
/// plane. The last box of a row may be partly unused; columns past its end are copied, too. `full`
/// completes when the bytes have arrived. One thread does it.
pub(crate) fn copy_boxes<'k>(
    tile: SmemTile,
    box_rows: u32,
    TmaSource { map, plane, blocks }: TmaSource<'k>,
    to: Shared<'k, u32>,
    full: Shared<'k, u64>,
    position: impl Fn([u32; 2]) -> [Value<'k, u32>; 2],
) {
    let (k, boxes_down) = (plane.kernel(), tile.runs / box_rows);
    for index in 0..boxes_down * tile.length.div_ceil(BOX) {
        let [x, y] = position([index / boxes_down * BOX, index % boxes_down * box_rows]);
        let to = to.offset(i64::from(index * box_rows * LINE_WORDS));
        match blocks {
            None => k.cp_async_bulk_tensor_3d_load(to, map, [x, y, plane], full),
            Some(blocks) => {
                k.cp_async_bulk_tensor_3d_load_multicast(to, map, [x, y, plane], full, blocks)
            }
        }
    }
}
