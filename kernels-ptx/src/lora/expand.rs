//! `y (+)= α·Σ t·Bᵀ` or `α·Σ dt·A` over the updates, at the speed of y.
//!
//! Grid: x: 32 rows, y: 256 columns. A thread of the 256 of a block has a quad of every fourth row,
//! whose values are on their way while t, the parts of which are added, and the small matrix are
//! brought into shared memory, 16 ranks at a time. The blocks of the first columns write the sums
//! of the parts to `total`, where it is given.
//!
//! Deterministic: each element is computed by one thread, update after update and rank after rank;
//! parts are added in ascending order.

use retrograph_ptx::ast::Entry;
use retrograph_ptx::build::{Kernel, Ptr, Shared, Value, Var};

use super::{RANKS, Rank, Side, UPDATES, pointers, rows_aligned};
use crate::primitives::vec4::Vec4;

/// Rows of a block.
const ROWS: u32 = 32;
/// Columns of a block.
const COLUMNS: u32 = 256;
/// Threads that share a row.
const QUADS: u32 = COLUMNS / 4;
const THREADS: u32 = 256;
/// Threads that share a quad of columns.
const LANES: u32 = THREADS / QUADS;
/// Floats from one rank of the matrix to the next in shared memory.
const STRIDE: u32 = COLUMNS + 4;
/// Parts of t that are under way at once.
const AHEAD: u32 = 4;

pub(super) fn entry(side: Side) -> Entry {
    Kernel::build(&format!("low_rank_add_{}", side.name()), |k| describe(k, side))
}

fn describe<'k>(k: &Kernel<'k>, side: Side) {
    let (t, w, total) = (pointers(k, "t"), pointers(k, "w"), pointers(k, "total"));
    let y = k.pointer::<f32>("y");
    let (rows, width) = (k.param::<u32>("rows"), k.param::<u32>("width"));
    let (rank, updates) = (k.param::<u32>("rank"), k.param::<u32>("updates"));
    let parts = [0, 1, 2].map(|update| k.param::<u32>(&format!("parts{update}")));
    let alpha = k.param::<f32>("alpha");
    let accumulate = k.param::<u32>("accumulate").ne(0);
    k.max_threads(THREADS);
    k.min_blocks(3);
    let block = Block {
        k: *k,
        side,
        rows,
        width,
        rank,
        alpha,
        low: k.shared("low", (ROWS * RANKS) as usize),
        matrix: k.shared("matrix", (RANKS * STRIDE) as usize),
    };
    let lane = k.tid_x() / QUADS;
    let vec4 = block.vec4(y);
    let sums = [(); (ROWS / LANES) as usize].map(|()| [(); 4].map(|()| k.var(0.0)));
    let row = |step: u32| k.ctaid_x() * ROWS + lane + step * LANES;
    k.when(accumulate, || {
        for (step, sums) in (0..).zip(&sums) {
            k.when(row(step).lt(rows), || {
                let before = vec4.load(y.at(row(step).mul_wide(width)));
                sums.iter().zip(before).for_each(|(sum, before)| sum.set(before));
            });
        }
    });
    let padded = (rank + (RANKS - 1)) & !(RANKS - 1);
    k.range(0, padded * updates, RANKS, |at| {
        let found = Rank::of(at, padded);
        let [t, w, total] = [t, w, total].map(|pointers| found.pick(pointers));
        k.barrier();
        block.fill_matrix(w, found.number);
        block.fill_low([t, total], (found.select(parts), found.number));
        k.barrier();
        block.add(&sums, found.number);
    });
    for (step, sums) in (0..).zip(&sums) {
        k.when(row(step).lt(rows), || {
            vec4.store(y.at(row(step).mul_wide(width)), sums.map(|sum| sum.get()));
        });
    }
}

struct Block<'k> {
    k: Kernel<'k>,
    side: Side,
    rows: Value<'k, u32>,
    width: Value<'k, u32>,
    rank: Value<'k, u32>,
    alpha: Value<'k, f32>,
    /// t, rows × ranks.
    low: Shared<'k, f32>,
    /// The small matrix, ranks × columns.
    matrix: Shared<'k, f32>,
}

impl<'k> Block<'k> {
    /// The columns of this thread, in rows of `array`.
    fn vec4(&self, array: Ptr<'k, f32>) -> Vec4<'k> {
        let first = self.k.ctaid_y() * COLUMNS + self.k.tid_x() % QUADS * 4;
        Vec4::new(first, self.width, rows_aligned(array, self.width))
    }

    /// Brings the ranks from `first` on of a small matrix into shared memory; what it does not have
    /// is zero.
    fn fill_matrix(&self, w: Ptr<'k, f32>, first: Value<'k, u32>) {
        let (k, thread) = (self.k, self.k.tid_x());
        if self.side == Side::A {
            let vec4 = self.vec4(w);
            let loaded = (0..RANKS / LANES).map(|step| {
                let rank = thread / QUADS + step * LANES;
                let values = [(); 4].map(|()| k.var(0.0));
                k.when((first + rank).lt(self.rank), || {
                    let row = vec4.load(w.at((first + rank).mul_wide(self.width)));
                    values.iter().zip(row).for_each(|(value, loaded)| value.set(loaded));
                });
                (rank, values)
            });
            for (rank, values) in loaded.collect::<Vec<_>>() {
                let place = rank * STRIDE + thread % QUADS * 4;
                self.matrix.store_vec4(place, values.map(|value| value.get()));
            }
            return;
        }
        let (rank, lane) = (thread % RANKS, thread / RANKS);
        let w = w.at(first + rank);
        let loaded = (0..COLUMNS * RANKS / THREADS).map(|step| {
            let (place, value) = (lane + step * (THREADS / RANKS), k.var(0.0));
            let column = k.ctaid_y() * COLUMNS + place;
            k.when((first + rank).lt(self.rank) & column.lt(self.width), || {
                value.set(w.load(column.mul_wide(self.rank)));
            });
            (place, value)
        });
        for (place, value) in loaded.collect::<Vec<_>>() {
            self.matrix.store(rank * STRIDE + place, value.get());
        }
    }

    /// Brings α·t of the ranks from `first` on into shared memory, zero where there is none.
    fn fill_low(
        &self,
        [t, total]: [Ptr<'k, f32>; 2],
        (parts, first): (Value<'k, u32>, Value<'k, u32>),
    ) {
        let (k, thread) = (self.k, self.k.tid_x());
        let (rank, own) = (thread % RANKS, (ROWS * RANKS / THREADS) as usize);
        let places: Vec<_> = (0..own as u32)
            .map(|step| {
                let row = thread / RANKS + step * (THREADS / RANKS);
                let number = k.ctaid_x() * ROWS + row;
                let inside = (first + rank).lt(self.rank) & number.lt(self.rows);
                let at = number.mul_wide(self.rank) + (first + rank).cast::<u64>();
                (row, inside, at, k.var(0.0))
            })
            .collect();
        let plane = self.rows.mul_wide(self.rank);
        k.range(0, parts, AHEAD, |part| {
            let ahead = (0..AHEAD).flat_map(|step| places.iter().map(move |it| (step, it)));
            let load = |(step, &(_, inside, at, sum))| {
                let (part, value): (Value<'k, u32>, _) = (part + step, k.var(0.0));
                k.when(inside & part.lt(parts), || {
                    value.set(t.load(plane * part.cast::<u64>() + at));
                });
                (sum, value)
            };
            let loaded: Vec<(Var<'k, f32>, Var<'k, f32>)> = ahead.map(load).collect();
            loaded.iter().for_each(|(sum, value)| sum.add_assign(value.get()));
        });
        for (row, inside, at, sum) in places {
            self.low.store(row * RANKS + rank, sum.get() * self.alpha);
            k.when(inside & k.ctaid_y().eq(0) & !total.is_null(), || total.store(at, sum.get()));
        }
    }

    /// Adds the products of what is in shared memory, where the update has the ranks.
    fn add(&self, sums: &[[Var<'k, f32>; 4]], first: Value<'k, u32>) {
        let (k, thread) = (self.k, self.k.tid_x());
        let low = self.low.at(thread / QUADS * RANKS);
        let matrix = self.matrix.at(thread % QUADS * 4);
        for rank in (0..RANKS).step_by(4) {
            k.when((first + rank).lt(self.rank), || {
                let w: [_; 4] =
                    std::array::from_fn(|i| matrix.load_vec4((rank + i as u32) * STRIDE));
                for (step, sums) in (0..).zip(sums) {
                    let t = low.load_vec4(step * LANES * RANKS + rank);
                    for (column, sum) in sums.iter().enumerate() {
                        let products = t.iter().zip(&w);
                        sum.update(|sum| products.fold(sum, |sum, (t, w)| t.fma(w[column], sum)));
                    }
                }
            });
        }
    }
}

const _: () = assert!(UPDATES == 3, "ranks are found among three updates");
