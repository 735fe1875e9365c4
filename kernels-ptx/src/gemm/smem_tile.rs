//! The tile of an operand that a stage holds, and its layouts in global and shared memory.

use retrograph_kernel_abi::DType;
use retrograph_ptx::build::{Pred, Value, Var};

use super::arith::div_const;
use super::layout::Major;
use super::params::GlobalOperand;
pub(super) use crate::primitives::swizzle::LINE_WORDS;

/// Bytes of a chunk, which one `cp.async` copies.
pub(super) const CHUNK_BYTES: u32 = 16;
const CHUNK_WORDS: u32 = CHUNK_BYTES / 4;

/// One operand of a stage in shared memory, in the orientation of global memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct SmemTile {
    /// Rows of a, or columns of b.
    pub(super) extent: u32,
    /// Elements along K.
    pub(super) tile_k: u32,
    /// Threads that load the tile.
    pub(super) threads: u32,
    pub(super) major: Major,
    /// Element type in shared memory, f32 or bf16.
    pub(super) dtype: DType,
    pub(super) layout: SmemLayout,
}

/// The layout of contiguous runs in shared memory. Both avoid bank conflicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SmemLayout {
    /// Consecutive runs with padding, for `ldmatrix` and scalar loads.
    Padded,
    /// 128-byte lines with the 128-byte swizzle of a `wgmma`
    /// [`MatrixDescriptor`](retrograph_ptx::build::MatrixDescriptor). `tile_k` is 64, so a line
    /// holds a whole run of a K-major tile. Longer runs of an MN-major tile are cut into lines of
    /// 64 elements: first the first line of every run, then the second, and so on.
    Swizzled,
}

impl SmemTile {
    /// Number of contiguous runs, and elements of a run.
    pub(super) fn runs(self) -> [u32; 2] {
        match self.major {
            Major::K => [self.extent, self.tile_k],
            Major::Mn => [self.tile_k, self.extent],
        }
    }

    /// Words from one run (or line) to the next. Padding of 16 bytes puts the eight rows of an
    /// `ldmatrix` matrix into different banks; 32 bytes do so for the four runs from which the
    /// lanes of a warp read single f32 elements.
    pub(super) fn pitch(self) -> u32 {
        if self.layout == SmemLayout::Swizzled {
            return LINE_WORDS;
        }
        let by_element = self.dtype == DType::F32 && self.major == Major::Mn;
        self.runs()[1] * self.dtype.bytes() / 4 + if by_element { 8 } else { 4 }
    }

    /// Words of shared memory.
    pub(super) fn words(self) -> u32 {
        match self.layout {
            SmemLayout::Padded => self.runs()[0] * self.pitch(),
            SmemLayout::Swizzled => self.extent * self.tile_k * self.dtype.bytes() / 4,
        }
    }

    /// The word of element `along` of run `run`.
    pub(super) fn word<'k>(self, run: Value<'k, u32>, along: Value<'k, u32>) -> Value<'k, u32> {
        let word = (along * self.dtype.bytes()) >> 2;
        if self.layout == SmemLayout::Padded {
            return run * self.pitch() + word;
        }
        let line = div_const(word, LINE_WORDS) * self.runs()[0] + run;
        self.chunk_word(line, div_const(word & (LINE_WORDS - 1), CHUNK_WORDS))
    }

    /// Chunks of a line: 128 bytes if swizzled, otherwise a whole run.
    pub(super) fn chunks_per_line(self) -> u32 {
        match self.layout {
            SmemLayout::Padded => self.runs()[1] * self.dtype.bytes() / CHUNK_BYTES,
            SmemLayout::Swizzled => LINE_WORDS / CHUNK_WORDS,
        }
    }

    /// Number of lines.
    pub(super) fn lines(self) -> u32 {
        self.extent * self.tile_k * self.dtype.bytes() / CHUNK_BYTES / self.chunks_per_line()
    }

    /// The first word of chunk `chunk` of line `line`.
    pub(super) fn chunk_word<'k>(
        self,
        line: Value<'k, u32>,
        chunk: Value<'k, u32>,
    ) -> Value<'k, u32> {
        let chunk = match self.layout {
            SmemLayout::Padded => chunk,
            SmemLayout::Swizzled => chunk ^ (line & 7),
        };
        line * self.pitch() + chunk * CHUNK_WORDS
    }

    /// The run of a line, and the line's first element in it; `None` if lines are whole runs.
    pub(super) fn run_of_line<'k>(self, line: Value<'k, u32>) -> Option<[Value<'k, u32>; 2]> {
        let ([runs, length], line_len) = (self.runs(), self.line_len());
        (line_len < length).then(|| [line & (runs - 1), div_const(line, runs) * line_len])
    }

    /// Elements of a line.
    pub(super) fn line_len(self) -> u32 {
        self.chunks_per_line() * CHUNK_BYTES / self.dtype.bytes()
    }
}

/// The rows of a (or columns of b) that a block reads, tile by tile along K.
pub(super) struct BlockOperand<'k> {
    pub(super) tile: SmemTile,
    pub(super) operand: GlobalOperand<'k>,
    /// First row or column of the block.
    pub(super) origin: Value<'k, u32>,
    /// Rows or columns of the operand, and length of K.
    pub(super) bounds: [Value<'k, u32>; 2],
}

impl<'k> BlockOperand<'k> {
    /// The index of the `unit` consecutive elements from element `along` of run `run` in the tile
    /// that starts at `k_start`, and whether they are in bounds.
    pub(super) fn index(
        &self,
        k_start: Value<'k, u32>,
        run_and_element: (Value<'k, u32>, Value<'k, u32>),
        unit: u32,
    ) -> (Value<'k, u32>, Pred<'k>) {
        self.coord(run_and_element, unit).index(k_start)
    }

    /// The coordinates of `unit` consecutive elements from element `along` of run `run`, clamped to
    /// the bounds.
    ///
    /// Reading a clamped row or column is harmless, since its results are not written, but many
    /// threads then read the same address. bf16 tiles therefore report it as out of bounds. f32
    /// tiles don't: the check would cost more time than it saves.
    pub(super) fn coord(
        &self,
        (run, along): (Value<'k, u32>, Value<'k, u32>),
        unit: u32,
    ) -> TileCoord<'k> {
        let ([extent, k_len], major) = (self.bounds, self.tile.major);
        let checks_extent = self.tile.dtype == DType::Bf16;
        let (position, k_offset, units) = match major {
            Major::K => (self.origin + run, along, [1, unit]),
            Major::Mn => (self.origin + along, run, [unit, 1]),
        };
        let clamped = position.min(extent - units[0]);
        let last_k = k_len - units[1];
        let in_extent = checks_extent.then(|| position.lt(extent));
        let leading_dim = self.operand.leading_dim;
        TileCoord { major, leading_dim, position: clamped, k_offset, last_k, in_extent }
    }

    /// Advances the address of a plane to the next index of the outer reduction, if `wraps`.
    pub(super) fn advance_reduction(&self, base: Var<'k, u64>, wraps: Pred<'k>) {
        let stride = wraps.select(self.operand.reduce_stride, 0);
        base.add_assign(stride.mul_wide(self.tile.dtype.bytes()));
    }
}

/// The coordinates of a few consecutive elements, the same in every tile of an operand.
pub(super) struct TileCoord<'k> {
    major: Major,
    leading_dim: Value<'k, u32>,
    /// Row or column of the operand.
    position: Value<'k, u32>,
    /// Index along K from the start of a tile, and its last valid index in the operand.
    k_offset: Value<'k, u32>,
    last_k: Value<'k, u32>,
    /// Whether the row or column is in bounds, if that is checked.
    in_extent: Option<Pred<'k>>,
}

impl<'k> TileCoord<'k> {
    /// The index in the tile that starts at `k_start`, and whether it is in bounds.
    pub(super) fn index(&self, k_start: Value<'k, u32>) -> (Value<'k, u32>, Pred<'k>) {
        let k_index = k_start + self.k_offset;
        let (inside, k_index) = (k_index.le(self.last_k), k_index.min(self.last_k));
        let index = match self.major {
            Major::K => self.position.mad_lo(self.leading_dim, k_index),
            Major::Mn => k_index.mad_lo(self.leading_dim, self.position),
        };
        (index, self.in_extent.map_or(inside, |in_extent| inside & in_extent))
    }
}
