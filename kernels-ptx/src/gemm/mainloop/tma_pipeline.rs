//! Pipeline of stages that a producer thread fills by TMA and consumer warps multiply.
//!
//! Each stage has two `mbarrier`s. *Full* completes when the bytes of both operands have arrived;
//! *empty* completes when every consumer warp has read the stage. Both are used again in each round
//! over the stages; the parity of the phase tells rounds apart.

use retrograph_kernel_abi::gemm::TENSOR_MAP_BOX;
use retrograph_ptx::build::{Kernel, Shared, TensorMapParam, Value, Var};

use crate::gemm::layout::Major;
use crate::gemm::smem_tile::{LINE_WORDS, SmemTile};

/// Rows of the box that one copy loads. A row is a line, so a box is as wide as high.
const BOX: u32 = TENSOR_MAP_BOX[1];
const _: () = assert!(TENSOR_MAP_BOX[0] == BOX, "boxes are square");
/// Words of a box.
const BOX_WORDS: u32 = BOX * LINE_WORDS;

/// The stages in shared memory, and their barriers.
#[derive(Clone, Copy)]
pub(in crate::gemm) struct TmaPipeline<'k> {
    kernel: Kernel<'k>,
    stages: u32,
    tiles: [SmemTile; 2],
    smem: Shared<'k, u32>,
    full: Shared<'k, u64>,
    empty: Shared<'k, u64>,
}

/// The stage that a thread uses next, and the parity of its phase.
#[derive(Clone, Copy)]
pub(in crate::gemm) struct PipelineState<'k> {
    stage: Var<'k, u32>,
    parity: Var<'k, u32>,
}

impl<'k> PipelineState<'k> {
    pub(in crate::gemm) fn new(k: &Kernel<'k>) -> Self {
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

/// Words of the stages, and of their barriers after them.
pub(in crate::gemm) fn words(stages: u32, tiles: [SmemTile; 2]) -> [u32; 2] {
    [stages * (tiles[0].words() + tiles[1].words()), stages * 4]
}

impl<'k> TmaPipeline<'k> {
    /// The pipeline with stages at `smem`, aligned for swizzling, and barriers at `barriers`.
    pub(in crate::gemm) fn new(
        k: &Kernel<'k>,
        (stages, tiles): (u32, [SmemTile; 2]),
        (smem, barriers): (Shared<'k, u32>, Shared<'k, u64>),
    ) -> Self {
        let empty = barriers.offset(i64::from(stages));
        Self { kernel: *k, stages, tiles, smem, full: barriers, empty }
    }

    /// Initializes the barriers for `consumers` consumer warps. One thread does it; a barrier of
    /// the block must follow.
    pub(in crate::gemm) fn init(&self, consumers: u32) {
        let k = self.kernel;
        for stage in 0..i64::from(self.stages) {
            k.mbarrier_init(self.full.offset(stage), 1);
            k.mbarrier_init(self.empty.offset(stage), consumers);
        }
        k.fence_mbarrier_init();
    }

    /// Fills the next stage as soon as it is empty, with the boxes of both operands from `k_start`
    /// on. One thread does it.
    pub(in crate::gemm) fn fill(
        &self,
        state: PipelineState<'k>,
        maps: [TensorMapParam<'k>; 2],
        ([row, column], k_start, plane): ([Value<'k, u32>; 2], Value<'k, u32>, Value<'k, u32>),
    ) {
        let k = self.kernel;
        let (stage, parity) = (state.stage.get(), state.parity.get());
        k.mbarrier_wait_parity(self.empty.at(stage), parity ^ 1);
        let (full, bytes) = (self.full.at(stage), self.stage_words() * 4);
        k.mbarrier_arrive_expect_tx(full, bytes);
        let places = self.operands(stage);
        for (((tile, map), place), start) in
            self.tiles.into_iter().zip(maps).zip(places).zip([row, column])
        {
            for index in 0..tile.extent / BOX {
                let to = place.offset(i64::from(index * BOX_WORDS));
                let extent = start + index * BOX;
                let (x, y) = match tile.major {
                    Major::K => (k_start, extent),
                    Major::Mn => (extent, k_start),
                };
                k.cp_async_bulk_tensor_3d_load(to, map, (x, y, plane), full);
            }
        }
        state.advance(self.stages);
    }

    /// Waits until the next stage is full, and returns its index and its tiles of a and b.
    pub(in crate::gemm) fn wait_full(
        &self,
        state: PipelineState<'k>,
    ) -> (Value<'k, u32>, [Shared<'k, u32>; 2]) {
        let (stage, parity) = (state.stage.get(), state.parity.get());
        self.kernel.mbarrier_wait_parity(self.full.at(stage), parity);
        state.advance(self.stages);
        (stage, self.operands(stage))
    }

    /// Tells the producer that this warp has read stage number `stage`. One lane of each consumer
    /// warp does it.
    pub(in crate::gemm) fn release(&self, stage: Value<'k, u32>) {
        self.kernel.mbarrier_arrive(self.empty.at(stage));
    }

    /// The tiles of a and b in a stage.
    fn operands(&self, stage: Value<'k, u32>) -> [Shared<'k, u32>; 2] {
        let a = self.smem.at(stage * self.stage_words());
        [a, a.offset(i64::from(self.tiles[0].words()))]
    }

    fn stage_words(&self) -> u32 {
        self.tiles[0].words() + self.tiles[1].words()
    }
}
