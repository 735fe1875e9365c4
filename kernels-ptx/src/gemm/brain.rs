//! Products whose operands are rounded to bf16: the tiles, and one tile of c.
//!
//! Operands are rounded on their way into shared memory, where they lie as in global memory: the
//! matrix loads of a warp transpose what must be transposed. Rows are 16 bytes longer than what
//! they hold, so that the eight rows of a matrix lie in different banks. From sm_80 on, tensor
//! cores multiply and add in f32; before that, threads make the same products with fused
//! multiply-adds.

mod carrier;
mod multiply;

use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Entry;
use retrograph_ptx::build::{Kernel, Shared, Value, Var};

use super::cargo::Stored;
use super::operand::Contiguous;
use super::sizes::{Parameters, Storage, over};
use super::walk::Walk;
use super::write::{Groups, Writer};
use carrier::{Carrier, Panel};
pub(super) use multiply::{Operand, matrix_of, multiply};

/// The shape of a tile and how its block works on it.
pub(super) struct Tile {
    /// The last part of the entry's name.
    pub(super) name: &'static str,
    /// Rows of c.
    rows: u32,
    /// Columns of c.
    columns: u32,
    /// Warps of a group, down and across.
    warps: [u32; 2],
    /// Length of the contraction that one group of warps takes per stage, a multiple of 16.
    depth: u32,
    /// Groups of warps that share a stage.
    split: u32,
    /// Blocks that find room on a multiprocessor together, which limits the registers of a thread.
    together: u32,
}

/// Every tile. The launch geometry of `retrograph-kernels` names the same ones.
pub(super) const TILES: [Tile; 7] = [
    Tile::new("128x128", [128, 128], [2, 4]).staged([32, 1, 1]),
    Tile::new("64x64", [64, 64], [2, 2]).staged([32, 1, 3]),
    Tile::new("32x32", [32, 32], [1, 2]).staged([32, 1, 6]),
    Tile::new("32x64_split2", [32, 64], [1, 2]).staged([32, 2, 3]),
    Tile::new("32x32_split4", [32, 32], [1, 1]).staged([32, 4, 3]),
    Tile::new("32x16_split8", [32, 16], [1, 1]).staged([16, 8, 2]),
    Tile::new("16x16_split8", [16, 16], [1, 1]).staged([16, 8, 2]),
];

/// Stages in shared memory: one is filled while the other one is read.
const STAGES: u32 = 2;

impl Tile {
    const fn new(name: &'static str, [rows, columns]: [u32; 2], warps: [u32; 2]) -> Self {
        Self { name, rows, columns, warps, depth: 16, split: 1, together: 1 }
    }

    const fn staged(self, [depth, split, together]: [u32; 3]) -> Self {
        Self { depth, split, together, ..self }
    }

    /// Warps of one group.
    fn group(&self) -> u32 {
        self.warps[0] * self.warps[1]
    }

    /// Threads of a block.
    fn threads(&self) -> u32 {
        32 * self.group() * self.split
    }

    /// The part of an operand that the block holds at a time.
    fn panel(&self, extent: u32, contiguous: Contiguous) -> Panel {
        Panel { extent, depth: self.depth * self.split, threads: self.threads(), contiguous }
    }

    /// Rows and columns of a warp.
    fn warp(&self) -> [u32; 2] {
        [self.rows / self.warps[0], self.columns / self.warps[1]]
    }
}

/// What a lane holds of 16 × 8 elements of c: two neighbours in a row, and two 8 rows below.
pub(super) type Patch<'k> = [Var<'k, f32>; 4];

/// The sums of a warp with that many rows and columns, from zero.
pub(super) fn patches<'k>(k: &Kernel<'k>, [rows, columns]: [u32; 2]) -> Vec<Vec<Patch<'k>>> {
    let row = || (0..columns / 8).map(|_| [(); 4].map(|()| k.var(0.0f32))).collect();
    (0..rows / 16).map(|_| row()).collect()
}

/// Where a thread is.
pub(super) struct Place<'k> {
    /// Its group.
    group: Value<'k, u32>,
    /// First row and column of its warp in the tile.
    pub(super) origin: [Value<'k, u32>; 2],
    /// Rows from one patch of a lane to the next.
    apart: u32,
}

impl<'k> Place<'k> {
    /// The place of a thread in groups of warps, so many down and across, with so many rows and
    /// columns each.
    pub(super) fn of(k: &Kernel<'k>, warps: [u32; 2], [rows, columns]: [u32; 2]) -> Self {
        let (warp, group) = (k.tid_x() >> 5, warps[0] * warps[1]);
        let within = warp & (group - 1);
        let (down, across) = (over(within, warps[1]), within & (warps[1] - 1));
        Self { group: over(warp, group), origin: [down * rows, across * columns], apart: 16 }
    }

    /// Row and column of the first pair of a lane.
    fn first_pair(&self, k: &Kernel<'k>) -> [Value<'k, u32>; 2] {
        [self.origin[0] + (k.lane() >> 2), self.origin[1] + (k.lane() & 3) * 2]
    }

    /// The place of a thread in warpgroups, one below the other, with so many rows each: a warp has
    /// 16 of each 64.
    pub(super) fn of_warpgroups(k: &Kernel<'k>, rows: u32) -> Self {
        let warp = k.tid_x() >> 5;
        let row = (warp >> 2) * rows + (warp & 3) * 16;
        Self { group: k.constant(0), origin: [row, k.constant(0)], apart: 64 }
    }
}

/// The entry for one tile, layout and storage of b.
pub(super) fn entry(
    (target, name): (SmTarget, &str),
    tile: &Tile,
    (layout, storage): ([Contiguous; 2], Storage),
) -> Entry {
    Kernel::build(name, |k| {
        k.max_threads(tile.threads());
        k.min_blocks(tile.together);
        let given = Parameters::declare(k, [Storage::F32, storage]);
        let origin = given.origin(k, [tile.rows, tile.columns]);
        let panels = [tile.panel(tile.rows, layout[0]), tile.panel(tile.columns, layout[1])];
        let lengths = panels.map(Panel::len);
        let gathered = if tile.split == 1 { 0 } else { tile.split * tile.rows * tile.columns };
        let words = ((lengths[0] + lengths[1]) * STAGES).max(gathered);
        let memory = k.shared::<u32>("panels", words as usize);
        let (m, n) = ((origin[0], [given.m, given.k]), (origin[1], [given.n, given.k]));
        let carriers = [
            Carrier::new((k, target), panels[0], given.a, m),
            Carrier::new((k, target), panels[1], given.b, n),
        ];
        let place = Place::of(k, tile.warps, tile.warp());
        let sums = patches(k, tile.warp());
        let first = place.group * tile.depth;
        let operands = [0, 1].map(|i| {
            let lies = (panels[i].contiguous, panels[i].pitch());
            Operand::new(k, lies, (place.origin[i], first), i == 0)
        });

        if let Stored::Nf4(scales) = given.b.stored {
            scales.fill_tables();
        }
        let depth = tile.depth * tile.split;
        let walk = Walk { kernel: *k, stages: STAGES, depth, lengths, carriers, memory };
        walk.run(&given, |stage| {
            let stages = [stage, stage.offset(i64::from(lengths[0]))];
            multiply((k, target), tile.depth, (&operands, stages), &sums);
        });
        let writer = Writer { kernel: *k, rounds: None, given, origin };
        finish(tile, &writer, (memory.reinterpret(), &place), &sums);
    })
}

/// Writes what the block has summed. Split tiles add their groups first, in shared memory, which
/// nobody reads any more.
fn finish<'k>(
    tile: &Tile,
    writer: &Writer<'k>,
    (memory, place): (Shared<'k, f32>, &Place<'k>),
    sums: &[Vec<Patch<'k>>],
) {
    let k = writer.kernel;
    let elements = tile.rows * tile.columns;
    let group = memory.at(place.group * elements);
    if tile.split == 1 {
        each_pair(&k, place, sums, |row, column, pair| writer.write(row, column, &pair));
    } else {
        store_pairs(&k, (group, tile.columns), place, sums);
        k.barrier();
        writer.write_groups(&Groups {
            memory,
            count: tile.split,
            first_row: 0,
            extent: [tile.rows, tile.columns],
            pitch: tile.columns,
            threads: tile.threads(),
        });
    }
}

/// Visits what a lane holds, two neighbours at a time, with their row and column in the tile.
pub(super) fn each_pair<'k>(
    k: &Kernel<'k>,
    place: &Place<'k>,
    sums: &[Vec<Patch<'k>>],
    mut visit: impl FnMut(Value<'k, u32>, Value<'k, u32>, [Value<'k, f32>; 2]),
) {
    let [row, column] = place.first_pair(k);
    for ([down, across], pair) in pairs(place, sums) {
        visit(row + down, column + across, pair);
    }
}

/// Puts what a lane holds into shared memory, where rows of the tile are `pitch` elements apart.
pub(super) fn store_pairs<'k>(
    k: &Kernel<'k>,
    (memory, pitch): (Shared<'k, f32>, u32),
    place: &Place<'k>,
    sums: &[Vec<Patch<'k>>],
) {
    let [row, column] = place.first_pair(k);
    let first = memory.at(row * pitch + column);
    for ([down, across], pair) in pairs(place, sums) {
        first.store_vec2(down * pitch + across, pair);
    }
}

/// The pairs of a lane, and how far down and across they lie from the first.
fn pairs<'k>(
    place: &Place<'k>,
    sums: &[Vec<Patch<'k>>],
) -> impl Iterator<Item = ([u32; 2], [Value<'k, f32>; 2])> {
    let apart = place.apart;
    (0..).zip(sums).flat_map(move |(i, patches)| {
        (0..).zip(patches).flat_map(move |(j, patch)| {
            let [a, b, c, d] = patch.map(Var::get);
            [([i * apart, j * 8], [a, b]), ([i * apart + 8, j * 8], [c, d])]
        })
    })
}
