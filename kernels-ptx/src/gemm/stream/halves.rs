//! b in two halves in shared memory: the upper 11 bits of each element, and the rest.
//!
//! Each half has a line of 128 bytes for each column, with 32 steps of the contraction, and lies as
//! descriptors want it ([`Swizzled`]). A thread loads blocks of four times 16 bytes, whichever way
//! neighbours lie, and stores pieces of four steps: of a block of four steps and four columns it
//! has all elements, so that transposing costs nothing. Eight neighbouring threads store to eight
//! different places of a line modulo 128 bytes, which is without conflicts.

use std::array::from_fn;

use retrograph_ptx::build::{Kernel, Line, Pred, Ptr, Shared, Swizzled, Value, Var};

use super::exact::DEPTH;
use super::panel::{LINE, Panel, Section};
use crate::gemm::operand::Contiguous;
use crate::gemm::sizes::over;
use crate::primitives::tf32::split;

/// Elements of a piece, and pieces of a thread.
const PIECE: u32 = 4;
/// Pieces in a line.
const PIECES: u32 = DEPTH / PIECE;

/// One thread's share in splitting b.
pub(super) struct Halves<'k> {
    section: Section<'k>,
    /// Address of the plane of the current summand.
    base: Var<'k, u64>,
    /// The thread's piece, and its first column in the tile.
    piece: Value<'k, u32>,
    column: Value<'k, u32>,
    /// Columns from one of its lines to the next, and from one of its blocks to the next.
    apart: [u32; 2],
    /// What is on its way: blocks of four times 16 bytes.
    loaded: Vec<[[Var<'k, u32>; 4]; 4]>,
}

impl<'k> Halves<'k> {
    /// Words of both halves of a stage.
    pub(super) fn words(columns: u32) -> u32 {
        2 * columns * LINE
    }

    /// Both halves of one half of the columns.
    pub(super) fn columns(stage: Shared<'k, u32>, columns: u32, half: u32) -> [Swizzled<'k>; 2] {
        let first = columns / 2 * half;
        [0, columns].map(|before| {
            stage.offset(i64::from((before + first) * LINE)).swizzled(Line::Contraction)
        })
    }

    /// The share of `thread`, one of those that the panel names, in `section`.
    pub(super) fn new(k: &Kernel<'k>, thread: Value<'k, u32>, section: Section<'k>) -> Self {
        let Panel { extent, threads, contiguous, .. } = section.panel;
        assert!((extent * PIECES).is_multiple_of(threads * 4), "a thread has whole blocks");
        let (blocks, lane) = (extent * PIECES / (threads * 4), k.lane());
        let (piece, column, apart) = match contiguous {
            Contiguous::Contraction => {
                let lines = threads / PIECES;
                (thread & (PIECES - 1), over(thread, PIECES), [lines, lines * 4])
            }
            // Eight threads have pieces of two groups of four columns.
            Contiguous::Extent => {
                let warp = thread >> 5;
                let piece = ((lane >> 1) & 3) + (warp & 1) * 4;
                let group = (lane & 1) + (lane >> 3) * 2 + (warp >> 1) * 8;
                (piece, group * PIECE, [1, extent / blocks])
            }
        };
        let base = k.var(section.source.start(k).0);
        let block = |_| [[(); 4]; 4].map(|piece| piece.map(|()| k.var(0u32)));
        let loaded = (0..blocks).map(block).collect();
        Self { section, base, piece, column, apart, loaded }
    }

    /// Starts to load the thread's elements of the stage that begins at `start`. What lies past an
    /// end is something else of the same column, or of one that is not written.
    pub(super) fn load(&self, start: Value<'k, u32>) {
        for (column, block) in self.blocks() {
            for (i, loaded) in (0u32..).zip(block) {
                let place = match self.section.panel.contiguous {
                    Contiguous::Contraction => (column + i * self.apart[0], self.piece * PIECE),
                    Contiguous::Extent => (self.piece * PIECE + i, column),
                };
                let (index, _) = self.section.place(start, place, PIECE);
                let from = Ptr::<u32>::from_address(self.base.get() + index.mul_wide(4u32));
                loaded.iter().zip(from.load_vec4(0)).for_each(|(to, word)| to.set(word));
            }
        }
    }

    /// The blocks of this thread with their first columns.
    fn blocks(&self) -> impl Iterator<Item = (Value<'k, u32>, &[[Var<'k, u32>; 4]; 4])> {
        (0u32..).zip(&self.loaded).map(|(nth, block)| (self.column + nth * self.apart[1], block))
    }

    /// Moves on to the next summand, if `wraps`.
    pub(super) fn advance(&self, wraps: Pred<'k>) {
        self.section.advance(self.base, wraps);
    }

    /// Splits what was loaded, and stores both halves.
    pub(super) fn store(&self, stage: Shared<'k, u32>) {
        for (column, block) in self.blocks() {
            let own = stage.at(column * LINE);
            let pieces = match self.section.panel.contiguous {
                Contiguous::Contraction => *block,
                Contiguous::Extent => from_fn(|i| from_fn(|j| block[j][i])),
            };
            for (i, piece) in (0u32..).zip(pieces) {
                let (parts, below) = (piece.map(|word| split(word.get())), i * self.apart[0]);
                let mixed = (self.piece ^ ((column + below) & 7)) * PIECE;
                let line = own.at(mixed).offset(i64::from(below * LINE));
                line.store_vec4(0, parts.map(|[high, _]| high));
                line.offset(i64::from(self.section.panel.extent * LINE))
                    .store_vec4(0, parts.map(|[_, low]| low));
            }
        }
    }
}
