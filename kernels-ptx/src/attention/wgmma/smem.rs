//! Shared memory of a block: resident tiles, and the pipeline of streamed tiles.

use retrograph_ptx::build::{Kernel, MatrixDescriptor, Pred, Shared, TensorMapParam, Value};

use super::{Operands, WARPS};
use crate::primitives::smem_tile::{Major, SmemTile};
use crate::primitives::swizzle::{LINE_WORDS, SWIZZLE_ALIGNMENT, align_for_swizzle};
use crate::primitives::tma_pipeline::{
    PipelineState, Producer, Stage, TmaPipeline, TmaSource, barrier_words, copy_boxes,
};
use crate::primitives::wgmma::ROWS;

/// A tile, or its last rows, at an address in shared memory. Other terms of a split tile follow it.
#[derive(Clone, Copy)]
pub(super) struct PlacedTile<'k> {
    pub(super) tile: SmemTile,
    smem: Shared<'k, u32>,
    /// Words from one term to the next.
    term_words: u32,
}

impl<'k> PlacedTile<'k> {
    /// A term of the tile.
    pub(super) fn term(self, index: usize) -> Self {
        Self { smem: self.smem.offset(i64::from(self.term_words) * index as i64), ..self }
    }

    /// The columns of the tile in tiles of at most `width` columns: whole lines.
    pub(super) fn columns(self, width: u32) -> impl Iterator<Item = Self> {
        let SmemTile { runs, length, .. } = self.tile;
        (0..length).step_by(width as usize).map(move |first| {
            let tile = SmemTile { length: width.min(length - first), ..self.tile };
            let lines = first / self.tile.line_len() * runs;
            Self { tile, smem: self.smem.offset((lines * LINE_WORDS).into()), ..self }
        })
    }

    /// The descriptor with the head along K, at a step of K.
    pub(super) fn k_major(self, step: u32) -> MatrixDescriptor<'k> {
        self.at_step(Major::K, step)
    }

    /// The descriptor with the rows along K, at a step of K.
    pub(super) fn mn_major(self, step: u32) -> MatrixDescriptor<'k> {
        self.at_step(Major::Mn, step)
    }

    fn at_step(self, major: Major, step: u32) -> MatrixDescriptor<'k> {
        self.tile.descriptor(self.smem, major).offset(self.tile.step_bytes(major, step))
    }
}

/// A head of a sequence in a tensor map.
#[derive(Clone, Copy)]
pub(super) struct HeadMap<'k> {
    pub(super) map: TensorMapParam<'k>,
    pub(super) sequence: Value<'k, u32>,
    /// First column of the head.
    pub(super) column: Value<'k, u32>,
    /// The planes of the sequences of one term.
    pub(super) batch: Value<'k, u32>,
    pub(super) operands: Operands,
}

impl<'k> HeadMap<'k> {
    /// Head `head` of a sequence of the batch, where each head has `head_dim` elements.
    pub(super) fn new(
        map: TensorMapParam<'k>,
        operands: Operands,
        [sequence, batch]: [Value<'k, u32>; 2],
        head: Value<'k, u32>,
        head_dim: Value<'k, u32>,
    ) -> Self {
        Self { map, sequence, column: head * head_dim, batch, operands }
    }

    /// Copies the terms of `tile` from row `row` of the head on. `full` completes when their bytes
    /// have arrived.
    fn copy(self, tile: SmemTile, to: Shared<'k, u32>, row: Value<'k, u32>, full: Shared<'k, u64>) {
        for term in 0..self.operands.terms() {
            let to = to.offset((term * tile.words()).into());
            let plane = if term == 0 { self.sequence } else { self.sequence + self.batch };
            let source = TmaSource { map: self.map, plane, blocks: None };
            copy_boxes(tile, self.operands.box_rows(), source, to, full, |[x, y]| {
                [self.column + x, row + y]
            });
        }
    }
}

/// The sizes of the shared memory of a block.
#[derive(Clone, Copy)]
pub(super) struct SmemLayout {
    /// Terms of each tile.
    pub(super) terms: u32,
    /// The tiles that stay for the whole block.
    pub(super) resident: SmemTile,
    pub(super) resident_count: u32,
    /// The tile of a stage.
    pub(super) streamed: SmemTile,
    /// Number of stages: two for each pair of tiles.
    pub(super) stages: u32,
    /// Who starts the copies.
    pub(super) producer: Producer,
}

impl SmemLayout {
    /// Words of resident tiles, of stages, and of barriers.
    fn words(self) -> [u32; 3] {
        [
            self.resident_count * self.terms * self.resident.words(),
            self.stages * self.stage_words(),
            barrier_words(self.stages) + 4,
        ]
    }

    /// Words of a stage.
    fn stage_words(self) -> u32 {
        self.terms * self.streamed.words()
    }

    /// Dynamic shared memory in bytes.
    pub(super) fn bytes(self) -> u32 {
        self.words().iter().sum::<u32>() * 4 + SWIZZLE_ALIGNMENT
    }

    /// Assigns addresses, and initializes the barriers.
    pub(super) fn declare<'k>(self, k: &Kernel<'k>) -> Smem<'k> {
        self.place(k, k.dynamic_shared())
    }

    /// The same after the memory of `before`.
    pub(super) fn declare_after<'k>(self, k: &Kernel<'k>, before: Self) -> Smem<'k> {
        self.place(k, k.dynamic_shared().offset((before.bytes() / 4).into()))
    }

    fn place<'k>(self, k: &Kernel<'k>, base: Shared<'k, u32>) -> Smem<'k> {
        let resident = align_for_swizzle(k, base);
        let [resident_words, words_of_stages, _] = self.words();
        let stages = resident.offset(resident_words.into());
        let barriers = stages.offset(words_of_stages.into()).reinterpret::<u64>();
        let resident_full = barriers.offset(i64::from(2 * self.stages));
        let resident_empty = resident_full.offset(1);
        let (producer, stage_words) = (self.producer, self.stage_words());
        let pipeline = TmaPipeline::new(k, producer, self.stages, stage_words, stages, barriers);
        k.when(k.tid_x().eq(0), || {
            pipeline.init(WARPS);
            k.mbarrier_init(resident_full, 1);
            k.mbarrier_init(resident_empty, WARPS);
            k.fence_mbarrier_init();
        });
        k.barrier();
        // The second warpgroup runs after the first, so the stages that it fills are empty.
        let copies = producer.is_here(k, WARPS / 2);
        let [filled, read] = [(); 2].map(|()| PipelineState::new(k));
        Smem {
            kernel: *k,
            layout: self,
            resident,
            resident_full,
            resident_empty,
            pipeline,
            filled,
            read,
            copies,
        }
    }
}

/// The parts of a [`SmemLayout`] in a kernel.
#[derive(Clone, Copy)]
pub(super) struct Smem<'k> {
    kernel: Kernel<'k>,
    layout: SmemLayout,
    resident: Shared<'k, u32>,
    resident_full: Shared<'k, u64>,
    resident_empty: Shared<'k, u64>,
    pipeline: TmaPipeline<'k>,
    /// The stage that is filled next.
    filled: PipelineState<'k>,
    /// The stage that is read next.
    read: PipelineState<'k>,
    /// Whether this thread is part of the producer.
    pub(super) copies: Pred<'k>,
}

impl<'k> Smem<'k> {
    /// Pairs of tiles in flight.
    pub(super) fn pairs(&self) -> u32 {
        self.layout.stages / 2
    }

    /// Copies the resident tiles, from row `row` of the heads on.
    pub(super) fn copy_resident(&self, sources: &[HeadMap<'k>], row: Value<'k, u32>) {
        let tile = self.layout.resident;
        let bytes = self.layout.resident_count * self.layout.terms * tile.bytes();
        self.layout.producer.in_one_lane(&self.kernel, || {
            self.kernel.mbarrier_arrive_expect_tx(self.resident_full, bytes);
            for (index, source) in (0..).zip(sources) {
                source.copy(tile, self.resident_tile(index), row, self.resident_full);
            }
        });
    }

    /// Copies the next tile, from row `row` of a head on, into its stage.
    pub(super) fn copy(&self, source: HeadMap<'k>, row: Value<'k, u32>) {
        let tile = self.layout.streamed;
        self.pipeline.fill(self.filled, self.layout.terms * tile.bytes(), |stage, full| {
            source.copy(tile, stage.smem, row, full);
        });
    }

    /// Waits for the resident tiles of a phase, and returns the rows of this warpgroup in each.
    pub(super) fn wait_resident<const N: usize>(
        &self,
        parity: Value<'k, u32>,
        warpgroup: Value<'k, u32>,
    ) -> [PlacedTile<'k>; N] {
        self.kernel.mbarrier_wait_parity(self.resident_full, parity);
        let (tile, rows) = (self.layout.resident, warpgroup * (ROWS * LINE_WORDS));
        std::array::from_fn(|index| PlacedTile {
            tile,
            smem: self.resident_tile(index as u32).at(rows),
            term_words: tile.words(),
        })
    }

    /// Signals that this warp has read the resident tiles.
    pub(super) fn release_resident(&self) {
        let k = self.kernel;
        k.when(k.lane().eq(0), || k.mbarrier_arrive(self.resident_empty));
    }

    /// Waits until every warp has released the resident tiles.
    pub(super) fn wait_resident_empty(&self, parity: Value<'k, u32>) {
        self.kernel.mbarrier_wait_parity(self.resident_empty, parity);
    }

    /// Waits for the resident tiles, and returns tile number `index`, which has as many rows as a
    /// warpgroup.
    pub(super) fn wait_resident_tile(&self, index: Value<'k, u32>) -> PlacedTile<'k> {
        self.kernel.mbarrier_wait_parity(self.resident_full, 0);
        let tile = self.layout.resident;
        let smem = self.resident.at(index * tile.words());
        PlacedTile { tile, smem, term_words: tile.words() }
    }

    /// The tile in stage number `stage`.
    pub(super) fn streamed_tile(&self, stage: Value<'k, u32>) -> PlacedTile<'k> {
        let tile = self.layout.streamed;
        let smem = self.pipeline.stage(stage).smem;
        PlacedTile { tile, smem, term_words: tile.words() }
    }

    /// Waits for the next tile.
    pub(super) fn wait(&self) -> (Stage<'k>, PlacedTile<'k>) {
        let stage = self.pipeline.wait_full(self.read);
        let tile = self.layout.streamed;
        (stage, PlacedTile { tile, smem: stage.smem, term_words: tile.words() })
    }

    /// Signals that this warp has read a stage.
    pub(super) fn release(&self, stage: Value<'k, u32>) {
        let k = self.kernel;
        k.when(k.lane().eq(0), || self.pipeline.release(stage));
    }

    fn resident_tile(&self, index: u32) -> Shared<'k, u32> {
        self.resident.offset((index * self.layout.terms * self.layout.resident.words()).into())
    }
}
