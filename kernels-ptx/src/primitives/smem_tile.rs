//! Tiles of matrices in shared memory.
//!
//! A tile consists of runs of contiguous elements, in the orientation of global memory. Loaders and
//! tensor cores access it in chunks of 16 bytes: one `cp.async`, or a row of an `ldmatrix` matrix.

use retrograph_kernel_abi::DType;
use retrograph_ptx::build::Value;

use super::arith::div_const;
use super::swizzle::LINE_WORDS;

/// Bytes of a chunk.
pub(crate) const CHUNK_BYTES: u32 = 16;
/// Words of a chunk.
pub(crate) const CHUNK_WORDS: u32 = CHUNK_BYTES / 4;

/// The dimension of an operand along which its runs are contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Major {
    /// Along K.
    K,
    /// Along M (operand a) or N (operand b).
    Mn,
}

/// The shape and the layout of a tile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SmemTile {
    /// Number of runs.
    pub(crate) runs: u32,
    /// Elements of a run.
    pub(crate) length: u32,
    /// Element type, f32 or bf16.
    pub(crate) dtype: DType,
    pub(crate) layout: SmemLayout,
}

/// The layout of runs in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SmemLayout {
    /// Consecutive runs, each with this number of words of padding.
    Padded(u32),
    /// Consecutive runs without padding. Chunk c of run r is stored at chunk c XOR (r mod 8), so
    /// that the eight rows of an `ldmatrix` matrix are in different banks.
    XorSwizzled,
    /// Lines of 128 bytes with the 128-byte swizzle of TMA and of a `wgmma`
    /// [`MatrixDescriptor`](retrograph_ptx::build::MatrixDescriptor). Longer runs are cut into
    /// lines: first the first line of every run, then the second, and so on. The last line of a run
    /// may be partly unused.
    Swizzled,
}

impl SmemTile {
    /// A tile in f32 whose runs have `padding` elements of padding.
    pub(crate) const fn f32([runs, length]: [u32; 2], padding: u32) -> Self {
        Self { runs, length, dtype: DType::F32, layout: SmemLayout::Padded(padding) }
    }

    /// A tile of 16-bit elements for TMA and `wgmma`.
    pub(crate) const fn swizzled_16_bit([runs, length]: [u32; 2]) -> Self {
        Self { runs, length, dtype: DType::Bf16, layout: SmemLayout::Swizzled }
    }

    /// Words of the elements of a run.
    const fn run_words(self) -> u32 {
        self.length * self.dtype.bytes() / 4
    }

    /// Words from one run (or line) to the next.
    pub(crate) const fn pitch(self) -> u32 {
        match self.layout {
            SmemLayout::Padded(padding) => self.run_words() + padding,
            SmemLayout::XorSwizzled => self.run_words(),
            SmemLayout::Swizzled => LINE_WORDS,
        }
    }

    /// Words of the tile.
    pub(crate) const fn words(self) -> u32 {
        match self.layout {
            SmemLayout::Swizzled => self.lines() * LINE_WORDS,
            _ => self.runs * self.pitch(),
        }
    }

    /// Bytes of the tile.
    pub(crate) const fn bytes(self) -> u32 {
        self.words() * 4
    }

    /// The word of element `along` of run `run`, the first of a chunk.
    pub(crate) fn word<'k>(self, run: Value<'k, u32>, along: Value<'k, u32>) -> Value<'k, u32> {
        let word = (along * self.dtype.bytes()) >> 2;
        match self.layout {
            SmemLayout::Padded(_) => run * self.pitch() + word,
            SmemLayout::XorSwizzled => self.chunk_word(run, div_const(word, CHUNK_WORDS)),
            SmemLayout::Swizzled => {
                let line = div_const(word, LINE_WORDS) * self.runs + run;
                self.chunk_word(line, div_const(word & (LINE_WORDS - 1), CHUNK_WORDS))
            }
        }
    }

    /// Chunks of a line: 128 bytes if lines are cut from runs, otherwise a whole run.
    pub(crate) const fn chunks_per_line(self) -> u32 {
        match self.layout {
            SmemLayout::Swizzled => LINE_WORDS / CHUNK_WORDS,
            _ => self.run_words() / CHUNK_WORDS,
        }
    }

    /// Number of lines.
    pub(crate) const fn lines(self) -> u32 {
        self.runs * (self.run_words() / CHUNK_WORDS).div_ceil(self.chunks_per_line())
    }

    /// The position at which chunk `chunk` of line `line` is stored in the line.
    pub(crate) fn stored_chunk<'k>(
        self,
        line: Value<'k, u32>,
        chunk: Value<'k, u32>,
    ) -> Value<'k, u32> {
        match self.layout {
            SmemLayout::Padded(_) => chunk,
            SmemLayout::XorSwizzled | SmemLayout::Swizzled => chunk ^ (line & 7),
        }
    }

    /// The first word of chunk `chunk` of line `line`.
    pub(crate) fn chunk_word<'k>(
        self,
        line: Value<'k, u32>,
        chunk: Value<'k, u32>,
    ) -> Value<'k, u32> {
        let chunk = self.stored_chunk(line, chunk);
        line * self.pitch() + chunk * CHUNK_WORDS
    }

    /// The run of a line, and the line's first element in it; `None` if lines are whole runs.
    pub(crate) fn run_of_line<'k>(self, line: Value<'k, u32>) -> Option<[Value<'k, u32>; 2]> {
        let line_len = self.line_len();
        (line_len < self.length)
            .then(|| [line & (self.runs - 1), div_const(line, self.runs) * line_len])
    }

    /// Elements of a line.
    pub(crate) const fn line_len(self) -> u32 {
        self.chunks_per_line() * CHUNK_BYTES / self.dtype.bytes()
    }
}
