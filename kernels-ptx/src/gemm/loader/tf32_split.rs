//! Loader that splits b, an f32 operand, into tf32 hi and lo tiles in shared memory.
//!
//! Each tile has one 128-byte line per column of b, with 32 elements along K, in the swizzled
//! layout of `wgmma` ([`MatrixDescriptor`]). A thread loads blocks of 4 × 16 bytes and stores
//! chunks of four elements along K. It holds all elements of a 4 × 4 block, so transposing an
//! MN-major operand is free. Eight consecutive threads store to different 16-byte chunks modulo 128
//! bytes, which avoids bank conflicts.

use std::array::from_fn;

use retrograph_ptx::build::{Kernel, MatrixDescriptor, Pred, Ptr, Shared, Value, Var};

use crate::gemm::mainloop::wgmma_tf32x3::TILE_K;
use crate::gemm::operand_tile::{BlockOperand, OperandTile};
use crate::primitives::arith::div_const;
use crate::primitives::registers::{Registers, registers, set, values};
use crate::primitives::smem_tile::Major;
use crate::primitives::swizzle::LINE_WORDS;
use crate::primitives::tf32::split;

/// Elements per chunk, and chunks per line.
const CHUNK_LEN: u32 = 4;
const CHUNKS_PER_LINE: u32 = TILE_K / CHUNK_LEN;

/// A thread's share of splitting b.
pub(in crate::gemm) struct Tf32SplitLoader<'k> {
    source: BlockOperand<'k>,
    /// Address of the current plane.
    base: Var<'k, u64>,
    /// The thread's chunk, and its first column in the tile.
    chunk: Value<'k, u32>,
    column: Value<'k, u32>,
    /// Columns between the lines of a block, and between the blocks of a thread.
    line_stride: u32,
    block_stride: u32,
    /// Blocks in flight.
    blocks: Vec<[Registers<'k, 4, u32>; 4]>,
}

impl<'k> Tf32SplitLoader<'k> {
    /// Words of the hi and the lo tile of a stage.
    pub(in crate::gemm) fn words(columns: u32) -> u32 {
        2 * columns * LINE_WORDS
    }

    /// Descriptors of the hi and the lo tile, for one half of the columns.
    pub(in crate::gemm) fn descriptors(
        stage: Shared<'k, u32>,
        columns: u32,
        half: u32,
    ) -> [MatrixDescriptor<'k>; 2] {
        let first = columns / 2 * half;
        [0, columns]
            .map(|tile| stage.offset(i64::from((tile + first) * LINE_WORDS)).k_major_descriptor())
    }

    /// The share of `thread`, one of `source.tile.threads`, in `source`.
    pub(in crate::gemm) fn new(
        k: &Kernel<'k>,
        thread: Value<'k, u32>,
        source: BlockOperand<'k>,
    ) -> Self {
        let OperandTile { extent, threads, major, .. } = source.tile;
        let chunks = extent * CHUNKS_PER_LINE;
        assert!(chunks.is_multiple_of(threads * 4), "a thread has whole blocks");
        let (count, lane) = (chunks / (threads * 4), k.lane());
        let (chunk, column, line_stride, block_stride) = match major {
            Major::K => {
                let lines = threads / CHUNKS_PER_LINE;
                let chunk = thread & (CHUNKS_PER_LINE - 1);
                (chunk, div_const(thread, CHUNKS_PER_LINE), lines, lines * 4)
            }
            // Eight consecutive threads have four chunks of each of two groups of columns.
            Major::Mn => {
                let warp = thread >> 5;
                let chunk = ((lane >> 1) & 3) + (warp & 1) * 4;
                let group = (lane & 1) + (lane >> 3) * 2 + (warp >> 1) * 8;
                (chunk, group * CHUNK_LEN, 1, extent / count)
            }
        };
        let base = k.var(source.operand.start(k).0);
        let block = |_| [(); 4].map(|()| registers(k, 0));
        let blocks = (0..count).map(block).collect();
        Self { source, base, chunk, column, line_stride, block_stride, blocks }
    }

    /// Starts loading the thread's elements of the tile at `k_start`. Elements past the end of K
    /// are replaced by others of the same column. Columns past the end hold copies of others and
    /// are not written.
    pub(in crate::gemm) fn load(&self, k_start: Value<'k, u32>) {
        for (column, block) in self.blocks() {
            for (i, vector) in (0u32..).zip(block) {
                let (run, along) = match self.source.tile.major {
                    Major::K => (column + i * self.line_stride, self.chunk * CHUNK_LEN),
                    Major::Mn => (self.chunk * CHUNK_LEN + i, column),
                };
                let (index, _) = self.source.index(k_start, run, along, CHUNK_LEN);
                let from = Ptr::<u32>::from_address(self.base.get() + index.mul_wide(4u32));
                set(vector, from.load_vec4(0));
            }
        }
    }

    /// The blocks of this thread with their first columns.
    fn blocks(&self) -> impl Iterator<Item = (Value<'k, u32>, &[Registers<'k, 4, u32>; 4])> {
        (0u32..)
            .zip(&self.blocks)
            .map(|(index, block)| (self.column + index * self.block_stride, block))
    }

    /// Advances to the next index of the outer reduction, if `wraps`.
    pub(in crate::gemm) fn advance_reduction(&self, wraps: Pred<'k>) {
        self.source.advance_reduction(self.base, wraps);
    }

    /// Splits the loaded elements and stores hi and lo.
    pub(in crate::gemm) fn store(&self, stage: Shared<'k, u32>) {
        for (column, block) in self.blocks() {
            let line = stage.at(column * LINE_WORDS);
            let chunks = match self.source.tile.major {
                Major::K => *block,
                Major::Mn => from_fn(|i| from_fn(|j| block[j][i])),
            };
            for (i, chunk) in (0u32..).zip(chunks) {
                let ([hi, lo], offset) = (split(values(&chunk)), i * self.line_stride);
                let swizzled = (self.chunk ^ ((column + offset) & 7)) * CHUNK_LEN;
                let to = line.at(swizzled).offset(i64::from(offset * LINE_WORDS));
                to.store_vec4(0, hi);
                to.offset(i64::from(self.source.tile.extent * LINE_WORDS)).store_vec4(0, lo);
            }
        }
    }
}
