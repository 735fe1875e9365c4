//! `t = α·x·Aᵀ` or `α·dy·B`, in parts of the contraction: `out[p] = α·x[:, part p]·w[part p]`.
//!
//! Grid: x: 64 rows, y: a part, z: 16 or 32 of the ranks of all updates. A block of 256 threads
//! goes through its part 64 elements at a time, which are in shared memory while the next ones are
//! on their way in registers. Four groups of two warps share these: each has 16 of the 64, and a
//! thread has four rows, and every fourth rank.
//!
//! Deterministic: a group adds its elements in ascending order, and the four groups are added in
//! ascending order.

use retrograph_ptx::ast::Entry;
use retrograph_ptx::build::{Kernel, Pred, Ptr, Shared, Value, Var};

use super::{Rank, Side, pointers, rows_aligned};
use crate::primitives::vec4::Vec4;

/// Rows of a block.
const ROWS: u32 = 64;
/// Elements of the contraction that are in shared memory.
const DEPTH: u32 = 64;
/// Floats from one line of shared memory to the next: a multiple of a quad that moves neighbouring
/// lines to other banks.
const STRIDE: u32 = DEPTH + 4;
const THREADS: u32 = 256;
/// Groups of warps that share the contraction.
const GROUPS: u32 = 4;
/// Rows of a thread.
const OWN: u32 = 4;

/// The entry for `columns` ranks at a time.
pub(super) fn entry(side: Side, columns: u32) -> Entry {
    let name = format!("low_rank_down{columns}_{}", side.name());
    Kernel::build(&name, |k| describe(k, (side, columns)))
}

fn describe<'k>(k: &Kernel<'k>, (side, columns): (Side, u32)) {
    let x = k.pointer::<f32>("x");
    let (w, out) = (pointers(k, "w"), pointers(k, "out"));
    let (rows, width) = (k.param::<u32>("rows"), k.param::<u32>("width"));
    let (rank, updates) = (k.param::<u32>("rank"), k.param::<u32>("updates"));
    let (part, alpha) = (k.param::<u32>("part"), k.param::<f32>("alpha"));
    k.max_threads(THREADS);
    k.min_blocks(2);
    let lines = (ROWS + columns) * STRIDE;
    let tile = k.shared("tile", lines.max(GROUPS * ROWS * (columns + 4)) as usize);
    let start = k.ctaid_y() * part;
    let end = (start + part).min(width);
    let first = k.ctaid_z() * columns;
    let sizes = Sizes { rows, width, rank, all: rank * updates, end, first };
    let block = Block { k: *k, side, columns, sizes, tile };
    let (long, short) = (block.long(x), block.short(w));
    let sums = Sums::new(&block);
    let fetch = |at: Value<'k, u32>| {
        long.fetch(&block, at);
        short.fetch(&block, at);
    };
    fetch(start);
    k.range(start, end, DEPTH, |at| {
        long.put();
        short.put();
        k.barrier();
        k.when((at + DEPTH).lt(end), || fetch(at + DEPTH));
        sums.add(*k);
        k.barrier();
    });
    sums.write(&block, (out, alpha));
}

#[derive(Clone, Copy)]
struct Sizes<'k> {
    rows: Value<'k, u32>,
    width: Value<'k, u32>,
    rank: Value<'k, u32>,
    /// Ranks of all updates.
    all: Value<'k, u32>,
    /// Where the part ends.
    end: Value<'k, u32>,
    /// The first of the ranks of the block.
    first: Value<'k, u32>,
}

#[derive(Clone, Copy)]
struct Block<'k> {
    k: Kernel<'k>,
    side: Side,
    columns: u32,
    sizes: Sizes<'k>,
    /// Lines of the rows, and behind them of the ranks; at the end the sums of the groups.
    tile: Shared<'k, f32>,
}

/// What a thread brings into shared memory of one operand.
struct Cargo<'k> {
    from: Vec<Source<'k>>,
    held: Vec<Var<'k, f32>>,
    to: Shared<'k, f32>,
    /// Floats between the places of one thread.
    apart: u32,
}

/// Where a thread loads a quad of a line, or one element.
struct Source<'k> {
    array: Ptr<'k, f32>,
    /// Of its elements in the part.
    at: Value<'k, u32>,
    whole: Load<'k>,
}

#[derive(Clone, Copy)]
enum Load<'k> {
    /// Neighbours of a row, where there is one.
    Vec4 { aligned: Pred<'k>, inside: Pred<'k> },
    /// One element, whose neighbours along the contraction are a row apart.
    One { inside: Pred<'k> },
}

impl<'k> Block<'k> {
    /// The rows of x. Those past the last are the last, and are not written.
    fn long(&self, x: Ptr<'k, f32>) -> Cargo<'k> {
        let (k, Sizes { rows, width, .. }) = (self.k, self.sizes);
        let vec4s = DEPTH / 4;
        let (line, at) = (k.tid_x() / vec4s, k.tid_x() % vec4s * 4);
        let whole = Load::Vec4 { aligned: rows_aligned(x, width), inside: rows.gt(0) };
        let sources = (0..ROWS * vec4s / THREADS).map(|step| {
            let row = (k.ctaid_x() * ROWS + line + step * (THREADS / vec4s)).min(rows - 1);
            Source { array: x.at(row.mul_wide(width)), at, whole }
        });
        let to = self.tile.at(line * STRIDE + at);
        Cargo::new(k, sources.collect(), (to, THREADS / vec4s * STRIDE))
    }

    /// The lines of the ranks. Those past the last are zero.
    fn short(&self, w: [Ptr<'k, f32>; super::UPDATES]) -> Cargo<'k> {
        let (k, Sizes { width, rank, all, first, .. }) = (self.k, self.sizes);
        let (thread, lanes) = (k.tid_x(), THREADS / self.columns);
        let tile = self.tile.offset(i64::from(ROWS * STRIDE));
        if self.side == Side::A {
            let (line, at) = (thread / lanes, thread % lanes * 4);
            let found = Rank::of(first + line, rank);
            let (w, inside) = (found.pick(w), (first + line).lt(all));
            let array = w.at(found.number.mul_wide(width));
            let whole = Load::Vec4 { aligned: rows_aligned(w, width), inside };
            let at_step = |step: u32| Source { array, at: at + step * lanes * 4, whole };
            let sources = (0..DEPTH / 4 / lanes).map(at_step).collect();
            return Cargo::new(k, sources, (tile.at(line * STRIDE + at), lanes * 4));
        }
        let (line, at) = (thread % self.columns, thread / self.columns);
        let found = Rank::of(first + line, rank);
        let whole = Load::One { inside: (first + line).lt(all) };
        let array = found.pick(w).at(found.number);
        let at_step = |step: u32| Source { array, at: at + step * lanes, whole };
        let sources = (0..DEPTH / lanes).map(at_step).collect();
        Cargo::new(k, sources, (tile.at(line * STRIDE + at), lanes))
    }
}

impl<'k> Cargo<'k> {
    fn new(k: Kernel<'k>, from: Vec<Source<'k>>, (to, apart): (Shared<'k, f32>, u32)) -> Self {
        let each = from.iter().map(|source| match source.whole {
            Load::Vec4 { .. } => 4,
            Load::One { .. } => 1,
        });
        let held = (0..each.sum()).map(|_: u32| k.var(0.0)).collect();
        Self { from, held, to, apart }
    }

    /// Starts loading the elements of the contraction from `at` on; those behind the part are zero.
    fn fetch(&self, block: &Block<'k>, at: Value<'k, u32>) {
        let Sizes { rank, end, .. } = block.sizes;
        for (source, held) in self.from.iter().zip(self.held.chunks(self.each())) {
            let here = at + source.at;
            match source.whole {
                Load::Vec4 { aligned, inside } => {
                    let vec4 = Vec4::new(here, inside.select(end, 0), aligned);
                    let loaded = vec4.load(source.array);
                    held.iter().zip(loaded).for_each(|(held, value)| held.set(value));
                }
                Load::One { inside } => {
                    held[0].set(0.0);
                    block.k.when(inside & here.lt(end), || {
                        held[0].set(source.array.load(here.mul_wide(rank)));
                    });
                }
            }
        }
    }

    fn each(&self) -> usize {
        self.held.len() / self.from.len()
    }

    /// Puts what was loaded into shared memory.
    fn put(&self) {
        for (step, held) in (0..).zip(self.held.chunks(self.each())) {
            let to = self.to.offset(i64::from(step * self.apart));
            match held {
                [a, b, c, d] => to.store_vec4(0, [a, b, c, d].map(|held| held.get())),
                _ => to.store(0, held[0].get()),
            }
        }
    }
}

/// The sums of a thread: of each of its rows with each of its ranks.
struct Sums<'k> {
    /// Its first row and its first rank in shared memory.
    lines: [Shared<'k, f32>; 2],
    /// Where its first sum goes at the end.
    to: Shared<'k, f32>,
    sums: [Vec<Var<'k, f32>>; OWN as usize],
}

impl<'k> Sums<'k> {
    fn new(block: &Block<'k>) -> Self {
        let (k, tile) = (block.k, block.tile);
        let (group, half) = (k.warp() / 2, k.warp() % 2);
        let (row, column) = (half * (8 * OWN) + k.lane() % 8, k.lane() / 8);
        let depth = group * (DEPTH / GROUPS);
        let ranks = tile.offset(i64::from(ROWS * STRIDE));
        let lines = [tile.at(row * STRIDE + depth), ranks.at(column * STRIDE + depth)];
        let to = tile.at((group * ROWS + row) * (block.columns + 4) + column);
        let sums =
            [(); OWN as usize].map(|()| (0..block.columns / 4).map(|_| k.var(0.0)).collect());
        Self { lines, to, sums }
    }

    /// Adds the products of what is in shared memory.
    fn add(&self, k: Kernel<'k>) {
        k.range(0, DEPTH / GROUPS, 4, |at| {
            let [rows, ranks] = self.lines.map(|line| line.at(at));
            let rows: [_; OWN as usize] =
                std::array::from_fn(|row| rows.load_vec4(row as u32 * 8 * STRIDE));
            for column in 0..self.sums[0].len() {
                let w = ranks.load_vec4(column as u32 * 4 * STRIDE);
                for (x, sums) in rows.iter().zip(&self.sums) {
                    let products = x.iter().zip(w);
                    sums[column].update(|sum| products.fold(sum, |sum, (x, w)| x.fma(w, sum)));
                }
            }
        });
    }

    /// Adds the groups and writes the part. Nobody may still read the tile.
    fn write(
        &self,
        block: &Block<'k>,
        (out, alpha): ([Ptr<'k, f32>; super::UPDATES], Value<'k, f32>),
    ) {
        let Block { k, columns, sizes: Sizes { rows, rank, all, first, .. }, tile, .. } = *block;
        for (row, sums) in (0..).zip(&self.sums) {
            for (column, sum) in (0..).zip(sums) {
                self.to.store(row * 8 * (columns + 4) + column * 4, sum.get());
            }
        }
        k.barrier();
        let (column, lanes) = (k.tid_x() % columns, THREADS / columns);
        let found = Rank::of(first + column, rank);
        let above = k.ctaid_y().mul_wide(rows) + (k.ctaid_x() * ROWS).cast::<u64>();
        let out = found.pick(out).at(above * rank.cast::<u64>());
        for step in 0..ROWS / lanes {
            let row = k.tid_x() / columns + step * lanes;
            let groups =
                (0..GROUPS).map(|group| tile.load((row + group * ROWS) * (columns + 4) + column));
            let sum = groups.reduce(|sum, next| sum + next).expect("there is a group");
            let inside = (k.ctaid_x() * ROWS + row).lt(rows) & (first + column).lt(all);
            k.when(inside, || out.store(row * rank + found.number, sum * alpha));
        }
    }
}
