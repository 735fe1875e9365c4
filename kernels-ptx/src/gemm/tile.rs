//! The shapes of tiles, and which part of a tile a thread takes.

use retrograph_ptx::build::{Kernel, Value, Var};

use super::operand::Panel;
use super::sizes::{Storage, over};

/// The shape of a tile and how its block works on it.
pub(super) struct Tile {
    /// The last part of the entry's name.
    pub(super) name: &'static str,
    /// Rows of c.
    pub(super) rows: u32,
    /// Columns of c.
    pub(super) columns: u32,
    /// Rows of c that one thread holds, a multiple of 4.
    pub(super) thread_rows: u32,
    /// Columns of c that one thread holds, a multiple of 4.
    pub(super) thread_columns: u32,
    /// Length of the contraction that one group of threads takes per stage.
    pub(super) depth: u32,
    /// Groups of threads that share a stage.
    pub(super) split: u32,
    /// Stages in shared memory: with two, a stage is filled while the other one is read.
    pub(super) stages: u32,
    /// Blocks that find room on a multiprocessor together, which limits the registers of a thread.
    pub(super) together: u32,
}

/// Every tile. The launch geometry of `retrograph-kernels` names the same ones.
///
/// Shared memory gives a multiprocessor 32 elements per clock while it has 128 multipliers, so that
/// they are busy only if a thread makes four products or more of each element that it reads: 8 × 8
/// elements of c per thread are just enough, 8 × 4 allow two thirds, 4 × 4 half.
pub(super) const TILES: [Tile; 9] = [
    Tile::new("128x128", [128, 128], [8, 8]).staged([8, 1, 2, 2]),
    Tile::new("64x64", [64, 64], [8, 4]).staged([16, 1, 2, 4]),
    Tile::new("32x32", [32, 32], [4, 4]).staged([16, 1, 2, 8]),
    Tile::new("128x128_split2", [128, 128], [16, 8]).staged([8, 2, 2, 1]),
    Tile::new("64x64_split4", [64, 64], [16, 8]).staged([8, 4, 2, 2]),
    Tile::new("64x32_split4", [64, 32], [8, 8]).staged([8, 4, 2, 3]),
    Tile::new("32x32_split8", [32, 32], [8, 4]).staged([16, 8, 1, 2]),
    Tile::new("32x16_split16", [32, 16], [8, 4]).staged([8, 16, 1, 2]),
    Tile::new("16x16_split16", [16, 16], [4, 4]).staged([16, 16, 1, 2]),
];

impl Tile {
    const fn new(name: &'static str, tile: [u32; 2], thread: [u32; 2]) -> Self {
        let ([rows, columns], [thread_rows, thread_columns]) = (tile, thread);
        let (depth, split, stages, together) = (0, 1, 1, 1);
        Self { name, rows, columns, thread_rows, thread_columns, depth, split, stages, together }
    }

    const fn staged(self, [depth, split, stages, together]: [u32; 4]) -> Self {
        Self { depth, split, stages, together, ..self }
    }

    /// Threads across the rows and the columns of the tile.
    fn across(&self) -> [u32; 2] {
        [self.rows / self.thread_rows, self.columns / self.thread_columns]
    }

    /// Threads of one group.
    fn group(&self) -> u32 {
        let [down, across] = self.across();
        down * across
    }

    /// Threads of a block.
    pub(super) fn threads(&self) -> u32 {
        self.group() * self.split
    }

    /// How many bands of rows the tile has: a thread holds four rows of each, and groups are added
    /// band by band, so that a band of every group fits into the memory of the stages.
    pub(super) fn bands(&self) -> u32 {
        self.thread_rows / 4
    }

    /// Rows of a band.
    pub(super) fn band_rows(&self) -> u32 {
        self.rows / self.bands()
    }

    /// Elements of shared memory that a band of every group takes.
    pub(super) fn gathered(&self) -> u32 {
        if self.split == 1 { 0 } else { self.split * self.band_rows() * self.columns }
    }

    /// Blocks that find room together where b is stored so: codes on their way take registers
    /// beside many sums.
    pub(super) fn together(&self, storage: Storage) -> u32 {
        let many = self.thread_rows * self.thread_columns >= 64;
        if storage == Storage::Nf4 && many { 1 } else { self.together }
    }

    /// The part of an operand that the block holds at a time.
    pub(super) fn panel(&self, extent: u32) -> Panel {
        Panel { extent, depth: self.depth * self.split, threads: self.threads() }
    }
}

/// Where a thread is: its group and its place in the group's grid of threads.
pub(super) struct Place<'k> {
    pub(super) group: Value<'k, u32>,
    pub(super) row: Value<'k, u32>,
    pub(super) column: Value<'k, u32>,
}

impl<'k> Place<'k> {
    /// A warp covers a patch of 4 × 8 threads (8 × 4 where the tile is narrow), which reads the
    /// fewest different quads per step.
    pub(super) fn of(k: &Kernel<'k>, tile: &Tile) -> Self {
        let tid = k.tid_x();
        let [_, across] = tile.across();
        let (group, thread) = (over(tid, tile.group()), tid & (tile.group() - 1));
        let lanes_across = across.min(8);
        let lanes_down = 32 / lanes_across;
        let warps_across = across / lanes_across;
        let (warp, lane) = (thread >> 5, thread & 31);
        let row = over(warp, warps_across) * lanes_down + over(lane, lanes_across);
        let column = (warp & (warps_across - 1)) * lanes_across + (lane & (lanes_across - 1));
        Self { group, row, column }
    }
}

/// The elements of c that a thread holds, by row and column of its own.
pub(super) type Accumulators<'k> = Vec<Vec<Var<'k, f32>>>;
