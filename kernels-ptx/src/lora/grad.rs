//! `dB = α·dyᵀ·t` or `dA = α·dtᵀ·x`, in runs of rows: `out[p]` is the share of run p.
//!
//! Grid: x: a run of rows, y: 128 columns, z: 16 of the ranks of all updates. A warp of the four of
//! a block has every fourth row of the run, a thread a quad of it and all 16 ranks. Rows are loaded
//! into registers, eight ahead; t is brought into shared memory 64 rows at a time.
//!
//! Deterministic: a warp adds its rows in ascending order, and the four warps are added in order.

use retrograph_ptx::ast::Entry;
use retrograph_ptx::build::{Kernel, Ptr, Shared, Value, Var};

use super::{RANKS, Rank, Side, pointers, rows_aligned};
use crate::primitives::vec4::Vec4;

/// Rows of t that are in shared memory.
const ROWS: u32 = 64;
/// Columns of a block.
const COLUMNS: u32 = 128;
const THREADS: u32 = 128;
const WARPS: u32 = THREADS / 32;
/// Rows of a warp that are under way.
const AHEAD: u32 = 8;
/// Rows of a block that are.
const BATCH: u32 = AHEAD * WARPS;
/// Floats from one rank of the sums to the next in shared memory.
const STRIDE: u32 = COLUMNS + 4;

pub(super) fn entry(side: Side) -> Entry {
    Kernel::build(&format!("low_rank_grad_{}", side.name()), |k| {
        let x = k.pointer::<f32>("x");
        let (t, out) = (pointers(k, "t"), pointers(k, "out"));
        let (rows, width) = (k.param::<u32>("rows"), k.param::<u32>("width"));
        let (rank, run) = (k.param::<u32>("rank"), k.param::<u32>("run"));
        let alpha = k.param::<f32>("alpha");
        let accumulate = k.param::<u32>("accumulate").ne(0);
        k.max_threads(THREADS);
        k.min_blocks(4);
        let padded = (rank + (RANKS - 1)) & !(RANKS - 1);
        let found = Rank::of(k.ctaid_z() * RANKS, padded);
        let first = k.ctaid_x() * run;
        let end = (first + run).min(rows);
        let vec4 = k.ctaid_y() * COLUMNS + k.lane() * 4;
        let block = Block {
            k: *k,
            x,
            t: found.pick(t),
            vec4: Vec4::new(vec4, width, rows_aligned(x, width)),
            sizes: [end, width, rank],
            first: found.number,
            low: k.shared("low", (ROWS * RANKS) as usize),
            held: [(); AHEAD as usize].map(|()| [(); 4].map(|()| k.var(0.0))),
            sums: (0..RANKS).map(|_| [(); 4].map(|()| k.var(0.0))).collect(),
        };
        k.range(first, end, ROWS, |at| {
            (0..AHEAD).for_each(|step| block.fetch(step, at));
            k.barrier();
            block.fill(at);
            k.barrier();
            for step in 0..AHEAD {
                block.add(step, 0);
                block.fetch(step, at + BATCH);
            }
            k.when((at + BATCH).lt(end), || {
                (0..AHEAD).for_each(|step| block.add(step, BATCH));
            });
        });
        let out = found.pick(out).at(rank.mul_wide(width) * k.ctaid_x().cast::<u64>());
        block.write(side, out, |before, sum| {
            let result = k.var(sum * alpha);
            k.when(accumulate, || result.add_assign(before()));
            result.get()
        });
    })
}

struct Block<'k> {
    k: Kernel<'k>,
    x: Ptr<'k, f32>,
    t: Ptr<'k, f32>,
    vec4: Vec4<'k>,
    /// The end of the run, the columns, and the rank.
    sizes: [Value<'k, u32>; 3],
    /// The first rank of the block.
    first: Value<'k, u32>,
    low: Shared<'k, f32>,
    held: [[Var<'k, f32>; 4]; AHEAD as usize],
    sums: Vec<[Var<'k, f32>; 4]>,
}

impl<'k> Block<'k> {
    /// Starts loading a row of this warp, of those from `at` on; zero where the run has ended.
    fn fetch(&self, step: u32, at: Value<'k, u32>) {
        let (row, held) = (at + self.k.warp() + step * WARPS, &self.held[step as usize]);
        held.iter().for_each(|held| held.set(0.0));
        self.k.when(row.lt(self.sizes[0]), || {
            let loaded = self.vec4.load(self.x.at(row.mul_wide(self.sizes[1])));
            held.iter().zip(loaded).for_each(|(held, value)| held.set(value));
        });
    }

    /// Brings the rows of t from `at` on into shared memory, zero where there are none.
    fn fill(&self, at: Value<'k, u32>) {
        let (k, [end, _, each]) = (self.k, self.sizes);
        let (rank, lane) = (k.tid_x() % RANKS, k.tid_x() / RANKS);
        let loaded = (0..ROWS * RANKS / THREADS).map(|step| {
            let (row, value) = (lane + step * (THREADS / RANKS), k.var(0.0));
            k.when((self.first + rank).lt(each) & (at + row).lt(end), || {
                value.set(self.t.at((at + row).mul_wide(each)).load(self.first + rank));
            });
            (row, value)
        });
        for (row, value) in loaded.collect::<Vec<_>>() {
            self.low.store(row * RANKS + rank, value.get());
        }
    }

    /// Adds the products of a row that was loaded, of those from number `from` on in shared memory.
    fn add(&self, step: u32, from: u32) {
        let low = self.low.at(self.k.warp() * RANKS);
        let x = self.held[step as usize].map(|held| held.get());
        for rank in (0..RANKS).step_by(4) {
            let t = low.load_vec4((from + step * WARPS) * RANKS + rank);
            for (t, sums) in t.iter().zip(&self.sums[rank as usize..]) {
                for (sum, x) in sums.iter().zip(x) {
                    sum.update(|sum| t.fma(x, sum));
                }
            }
        }
    }

    /// Adds the warps, and writes what `result` makes of what was there and the sum.
    fn write(
        &self,
        side: Side,
        out: Ptr<'k, f32>,
        result: impl Fn(&dyn Fn() -> Value<'k, f32>, Value<'k, f32>) -> Value<'k, f32>,
    ) {
        let (k, [_, width, each]) = (self.k, self.sizes);
        let shared = k.shared::<f32>("sums", (WARPS * RANKS * STRIDE) as usize);
        let own = shared.at(k.warp() * (RANKS * STRIDE) + k.lane() * 4);
        for (rank, sums) in (0..).zip(&self.sums) {
            own.store_vec4(rank * STRIDE, sums.map(|sum| sum.get()));
        }
        k.barrier();
        // Neighbouring threads write neighbouring elements.
        for step in 0..RANKS * COLUMNS / THREADS {
            let (rank, column) = match side {
                Side::A => (k.constant(step), k.tid_x()),
                Side::B => (k.tid_x() % RANKS, k.tid_x() / RANKS + step * (THREADS / RANKS)),
            };
            let place = shared.at(rank * STRIDE + column);
            let warps = (0..WARPS).map(|warp| place.load(warp * RANKS * STRIDE));
            let sum = warps.reduce(|sum, next| sum + next).expect("there is a warp");
            let (rank, column) = (self.first + rank, k.ctaid_y() * COLUMNS + column);
            k.when(rank.lt(each) & column.lt(width), || {
                let element = match side {
                    Side::A => out.at(rank.mul_wide(width)).at(column),
                    Side::B => out.at(column.mul_wide(each)).at(rank),
                };
                element.store(0, result(&|| element.load(0), sum));
            });
        }
    }
}
