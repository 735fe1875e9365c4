//! `y (+)= α·Σ t·Bᵀ` or `α·Σ dt·A`, summed over the adapters.
//!
//! Grid: 32 rows per block in x, 256 columns in y; 256 threads. A thread has one vec4 of columns in
//! every fourth row. y loads while t (after adding its splits) and the factor are copied to shared
//! memory, 16 ranks at a time. The blocks of the first columns also write the sum of the splits of
//! t to `t_sum`, if given.
//!
//! Deterministic: one thread computes each element, adapter by adapter and rank by rank; splits are
//! added in ascending order.

use retrograph_kernel_abi::lora::expand::{self, COLUMNS, ROWS, THREADS};
use retrograph_kernel_abi::lora::{ExpandParameters, LoraMatrix, MAX_ADAPTERS};
use retrograph_ptx::ast::Entry;
use retrograph_ptx::build::{Kernel, Ptr, Shared, Value, Var};

use super::{RANK_TILE, Rank, rows_aligned};
use crate::primitives::parameters::Declarations;
use crate::primitives::registers::{Registers, registers, set, values};
use crate::primitives::smem_tile::SmemTile;
use crate::primitives::vec4::Vec4;

/// Vec4s of a row of the tile; one thread each.
const COLUMN_VEC4S: u32 = COLUMNS / 4;
/// Rows that the block covers at a time.
const ROWS_PER_PASS: u32 = THREADS / COLUMN_VEC4S;
/// The tile of t, rows × ranks.
const T_TILE: SmemTile = SmemTile::f32([ROWS, RANK_TILE], 0);
/// The tile of the factor, ranks × columns.
const W_TILE: SmemTile = SmemTile::f32([RANK_TILE, COLUMNS], 4);
/// Splits of t in flight.
const LOADS_IN_FLIGHT: u32 = 4;

pub(super) fn entry(factor: LoraMatrix) -> Entry {
    Kernel::build(expand::entry(factor), |k| define(k, factor))
}

fn define<'k>(k: &Kernel<'k>, factor: LoraMatrix) {
    let parameters = ExpandParameters::declare(&mut Declarations(*k));
    let ExpandParameters { t0, t1, t2, w0, w1, w2, t_sum0, t_sum1, t_sum2, .. } = parameters;
    let ExpandParameters { y, rows, width, rank, adapters, .. } = parameters;
    let ExpandParameters { splits0, splits1, splits2, alpha, accumulate, .. } = parameters;
    let (t, w, t_sum) = ([t0, t1, t2], [w0, w1, w2], [t_sum0, t_sum1, t_sum2]);
    let splits = [splits0, splits1, splits2];
    let accumulate = accumulate.ne(0);
    k.max_threads(THREADS);
    k.min_blocks(3);
    let block = Block {
        k: *k,
        factor,
        rows,
        width,
        rank,
        alpha,
        t_tile: k.shared("t_tile", T_TILE.words() as usize),
        w_tile: k.shared("w_tile", W_TILE.words() as usize),
    };
    let row_lane = k.tid_x() / COLUMN_VEC4S;
    let vec4 = block.vec4(y);
    let acc = [(); (ROWS / ROWS_PER_PASS) as usize].map(|()| registers(k, 0.0));
    let row = |step: u32| k.ctaid_x() * ROWS + row_lane + step * ROWS_PER_PASS;
    k.when(accumulate, || {
        for (step, acc) in (0..).zip(&acc) {
            k.when(row(step).lt(rows), || {
                set(acc, vec4.load(y.at(row(step).mul_wide(width))));
            });
        }
    });
    let padded = (rank + (RANK_TILE - 1)) & !(RANK_TILE - 1);
    k.range(0, padded * adapters, RANK_TILE, |at| {
        let rank_index = Rank::of(at, padded);
        let [t, w, t_sum] = [t, w, t_sum].map(|pointers| rank_index.select_ptr(pointers));
        k.barrier();
        block.load_w_tile(w, rank_index.number);
        block.load_t_tile([t, t_sum], rank_index.select(splits), rank_index.number);
        k.barrier();
        block.add(&acc, rank_index.number);
    });
    for (step, acc) in (0..).zip(&acc) {
        k.when(row(step).lt(rows), || {
            vec4.store(y.at(row(step).mul_wide(width)), values(acc));
        });
    }
}

struct Block<'k> {
    k: Kernel<'k>,
    factor: LoraMatrix,
    rows: Value<'k, u32>,
    width: Value<'k, u32>,
    rank: Value<'k, u32>,
    alpha: Value<'k, f32>,
    t_tile: Shared<'k, f32>,
    w_tile: Shared<'k, f32>,
}

impl<'k> Block<'k> {
    /// The vec4 of this thread in rows of `array`.
    fn vec4(&self, array: Ptr<'k, f32>) -> Vec4<'k> {
        let first = self.k.ctaid_y() * COLUMNS + self.k.tid_x() % COLUMN_VEC4S * 4;
        Vec4::new(first, self.width, rows_aligned(array, self.width))
    }

    /// Copies the ranks from `first` on of a factor to shared memory, padded with zeros.
    fn load_w_tile(&self, w: Ptr<'k, f32>, first: Value<'k, u32>) {
        let (k, thread) = (self.k, self.k.tid_x());
        if self.factor == LoraMatrix::A {
            let vec4 = self.vec4(w);
            let loaded = (0..RANK_TILE / ROWS_PER_PASS).map(|step| {
                let rank = thread / COLUMN_VEC4S + step * ROWS_PER_PASS;
                let row: Registers<'k> = registers(&k, 0.0);
                k.when((first + rank).lt(self.rank), || {
                    set(&row, vec4.load(w.at((first + rank).mul_wide(self.width))));
                });
                (rank, row)
            });
            for (rank, row) in loaded.collect::<Vec<_>>() {
                let offset = rank * W_TILE.pitch() + thread % COLUMN_VEC4S * 4;
                self.w_tile.store_vec4(offset, values(&row));
            }
            return;
        }
        let (rank, row_lane) = (thread % RANK_TILE, thread / RANK_TILE);
        let w = w.at(first + rank);
        let loaded = (0..COLUMNS * RANK_TILE / THREADS).map(|step| {
            let (offset, value) = (row_lane + step * (THREADS / RANK_TILE), k.var(0.0));
            let column = k.ctaid_y() * COLUMNS + offset;
            k.when((first + rank).lt(self.rank) & column.lt(self.width), || {
                value.set(w.load(column.mul_wide(self.rank)));
            });
            (offset, value)
        });
        for (offset, value) in loaded.collect::<Vec<_>>() {
            self.w_tile.store(rank * W_TILE.pitch() + offset, value.get());
        }
    }

    /// Copies α·t of the ranks from `first` on to shared memory, padded with zeros.
    fn load_t_tile(
        &self,
        [t, t_sum]: [Ptr<'k, f32>; 2],
        splits: Value<'k, u32>,
        first: Value<'k, u32>,
    ) {
        let (k, thread) = (self.k, self.k.tid_x());
        let (rank, own) = (thread % RANK_TILE, (ROWS * RANK_TILE / THREADS) as usize);
        let elements: Vec<_> = (0..own as u32)
            .map(|step| {
                let row = thread / RANK_TILE + step * (THREADS / RANK_TILE);
                let number = k.ctaid_x() * ROWS + row;
                let inside = (first + rank).lt(self.rank) & number.lt(self.rows);
                let at = number.mul_wide(self.rank) + (first + rank).cast::<u64>();
                (row, inside, at, k.var(0.0))
            })
            .collect();
        let plane = self.rows.mul_wide(self.rank);
        k.range(0, splits, LOADS_IN_FLIGHT, |split| {
            let in_flight =
                (0..LOADS_IN_FLIGHT).flat_map(|step| elements.iter().map(move |it| (step, it)));
            let load = |(step, &(_, inside, at, sum))| {
                let (split, value): (Value<'k, u32>, _) = (split + step, k.var(0.0));
                k.when(inside & split.lt(splits), || {
                    value.set(t.load(plane * split.cast::<u64>() + at));
                });
                (sum, value)
            };
            let loaded: Vec<(Var<'k, f32>, Var<'k, f32>)> = in_flight.map(load).collect();
            loaded.iter().for_each(|(sum, value)| sum.add_assign(value.get()));
        });
        for (row, inside, at, sum) in elements {
            self.t_tile.store(row * T_TILE.pitch() + rank, sum.get() * self.alpha);
            k.when(inside & k.ctaid_y().eq(0) & !t_sum.is_null(), || t_sum.store(at, sum.get()));
        }
    }

    /// Adds the products of the tiles in shared memory.
    fn add(&self, acc: &[Registers<'k>], first: Value<'k, u32>) {
        let (k, thread) = (self.k, self.k.tid_x());
        let t_tile = self.t_tile.at(thread / COLUMN_VEC4S * T_TILE.pitch());
        let w_tile = self.w_tile.at(thread % COLUMN_VEC4S * 4);
        for rank in (0..RANK_TILE).step_by(4) {
            k.when((first + rank).lt(self.rank), || {
                let w: [_; 4] =
                    std::array::from_fn(|i| w_tile.load_vec4((rank + i as u32) * W_TILE.pitch()));
                for (step, acc) in (0..).zip(acc) {
                    let t = t_tile.load_vec4(step * ROWS_PER_PASS * T_TILE.pitch() + rank);
                    for (column, sum) in acc.iter().enumerate() {
                        let products = t.iter().zip(&w);
                        sum.update(|sum| products.fold(sum, |sum, (t, w)| t.fma(w[column], sum)));
                    }
                }
            });
        }
    }
}

const _: () = assert!(MAX_ADAPTERS == 3, "ranks are found among three updates");
