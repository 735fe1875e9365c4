//! `dB = α·dyᵀ·t` or `dA = α·dtᵀ·x`, split over rows: `out[p]` is the partial sum of split p.
//!
//! Grid: x: a split of the rows; y: 128 columns; z: 16 of the ranks of all adapters. Each of the
//! four warps takes every fourth row; a thread has one vec4 of columns and all 16 ranks. Rows of x
//! are loaded into registers, eight in flight per warp; t is copied to shared memory 64 rows at a
//! time.
//!
//! Deterministic: a warp adds its rows in ascending order, and the four warps are added in order.

use retrograph_kernel_abi::lora::grad::{
    self, COLUMNS, ROWS_IN_FLIGHT as BLOCK_ROWS_IN_FLIGHT, THREADS,
};
use retrograph_kernel_abi::lora::{GradParameters, LoraMatrix};
use retrograph_ptx::ast::Entry;
use retrograph_ptx::build::{Kernel, Ptr, Shared, Value};

use super::{RANK_TILE, Rank, rows_aligned};
use crate::primitives::parameters::Declarations;
use crate::primitives::registers::{Registers, registers, set, values};
use crate::primitives::smem_tile::SmemTile;
use crate::primitives::vec4::Vec4;

/// Rows of t in shared memory, and their tile.
const TILE_ROWS: u32 = 64;
const T_TILE: SmemTile = SmemTile::f32([TILE_ROWS, RANK_TILE], 0);
/// The accumulators of a warp in shared memory.
const SUMS: SmemTile = SmemTile::f32([RANK_TILE, COLUMNS], 4);
const WARPS: u32 = THREADS / 32;
/// Rows of a warp in flight.
const ROWS_IN_FLIGHT: u32 = BLOCK_ROWS_IN_FLIGHT / WARPS;

pub(super) fn entry(factor: LoraMatrix) -> Entry {
    Kernel::build(grad::entry(factor), |k| {
        let parameters = GradParameters::declare(&mut Declarations(*k));
        let GradParameters { x, t0, t1, t2, out0, out1, out2, alpha, .. } = parameters;
        let GradParameters { rows, width, rank, split_len, accumulate, .. } = parameters;
        let (t, out) = ([t0, t1, t2], [out0, out1, out2]);
        let accumulate = accumulate.ne(0);
        k.max_threads(THREADS);
        k.min_blocks(4);
        let padded = (rank + (RANK_TILE - 1)) & !(RANK_TILE - 1);
        let rank_index = Rank::of(k.ctaid_z() * RANK_TILE, padded);
        let first = k.ctaid_x() * split_len;
        let end = (first + split_len).min(rows);
        let vec4 = k.ctaid_y() * COLUMNS + k.lane() * 4;
        let block = Block {
            k: *k,
            x,
            t: rank_index.select_ptr(t),
            vec4: Vec4::new(vec4, width, rows_aligned(x, width)),
            sizes: [end, width, rank],
            first: rank_index.number,
            t_tile: k.shared("t_tile", T_TILE.words() as usize),
            rows_in_flight: [(); ROWS_IN_FLIGHT as usize].map(|()| registers(k, 0.0)),
            acc: (0..RANK_TILE).map(|_| registers(k, 0.0)).collect(),
        };
        k.range(first, end, TILE_ROWS, |at| {
            (0..ROWS_IN_FLIGHT).for_each(|step| block.fetch(step, at));
            k.barrier();
            block.load_t_tile(at);
            k.barrier();
            for step in 0..ROWS_IN_FLIGHT {
                block.add(step, 0);
                block.fetch(step, at + BLOCK_ROWS_IN_FLIGHT);
            }
            k.when((at + BLOCK_ROWS_IN_FLIGHT).lt(end), || {
                (0..ROWS_IN_FLIGHT).for_each(|step| block.add(step, BLOCK_ROWS_IN_FLIGHT));
            });
        });
        let out = rank_index.select_ptr(out).at(rank.mul_wide(width) * k.ctaid_x().cast::<u64>());
        block.write(factor, out, |before, sum| {
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
    /// The end of the split, the number of columns, and the rank.
    sizes: [Value<'k, u32>; 3],
    /// First rank of the block.
    first: Value<'k, u32>,
    t_tile: Shared<'k, f32>,
    rows_in_flight: [Registers<'k>; ROWS_IN_FLIGHT as usize],
    acc: Vec<Registers<'k>>,
}

impl<'k> Block<'k> {
    /// Starts loading row number `step` of this warp from row `at` on; zeros past the end of the
    /// split.
    fn fetch(&self, step: u32, at: Value<'k, u32>) {
        let (row, registers) =
            (at + self.k.warp() + step * WARPS, &self.rows_in_flight[step as usize]);
        registers.iter().for_each(|register| register.set(0.0));
        self.k.when(row.lt(self.sizes[0]), || {
            set(registers, self.vec4.load(self.x.at(row.mul_wide(self.sizes[1]))));
        });
    }

    /// Copies the rows of t from `at` on to shared memory, padded with zeros.
    fn load_t_tile(&self, at: Value<'k, u32>) {
        let (k, [end, _, rank_count]) = (self.k, self.sizes);
        let (rank, row_lane) = (k.tid_x() % RANK_TILE, k.tid_x() / RANK_TILE);
        let loaded = (0..TILE_ROWS * RANK_TILE / THREADS).map(|step| {
            let (row, value) = (row_lane + step * (THREADS / RANK_TILE), k.var(0.0));
            k.when((self.first + rank).lt(rank_count) & (at + row).lt(end), || {
                value.set(self.t.at((at + row).mul_wide(rank_count)).load(self.first + rank));
            });
            (row, value)
        });
        for (row, value) in loaded.collect::<Vec<_>>() {
            self.t_tile.store(row * T_TILE.pitch() + rank, value.get());
        }
    }

    /// Adds the products of loaded row `step` and the row of t at offset `from`.
    fn add(&self, step: u32, from: u32) {
        let t_tile = self.t_tile.at(self.k.warp() * T_TILE.pitch());
        let x = values(&self.rows_in_flight[step as usize]);
        for rank in (0..RANK_TILE).step_by(4) {
            let t = t_tile.load_vec4((from + step * WARPS) * T_TILE.pitch() + rank);
            for (t, acc) in t.iter().zip(&self.acc[rank as usize..]) {
                for (sum, x) in acc.iter().zip(x) {
                    sum.update(|sum| t.fma(x, sum));
                }
            }
        }
    }

    /// Adds the sums of the warps, and writes `result` of the previous value and the total.
    fn write(
        &self,
        factor: LoraMatrix,
        out: Ptr<'k, f32>,
        result: impl Fn(&dyn Fn() -> Value<'k, f32>, Value<'k, f32>) -> Value<'k, f32>,
    ) {
        let (k, [_, width, rank_count]) = (self.k, self.sizes);
        let shared = k.shared::<f32>("sums", (WARPS * SUMS.words()) as usize);
        let own = shared.at(k.warp() * SUMS.words() + k.lane() * 4);
        for (rank, acc) in (0..).zip(&self.acc) {
            own.store_vec4(rank * SUMS.pitch(), values(acc));
        }
        k.barrier();
        // Consecutive threads write consecutive elements.
        for step in 0..RANK_TILE * COLUMNS / THREADS {
            let (rank, column) = match factor {
                LoraMatrix::A => (k.constant(step), k.tid_x()),
                LoraMatrix::B => {
                    (k.tid_x() % RANK_TILE, k.tid_x() / RANK_TILE + step * (THREADS / RANK_TILE))
                }
            };
            let source = shared.at(rank * SUMS.pitch() + column);
            let warps = (0..WARPS).map(|warp| source.load(warp * SUMS.words()));
            let sum = warps.reduce(|sum, next| sum + next).expect("there is a warp");
            let (rank, column) = (self.first + rank, k.ctaid_y() * COLUMNS + column);
            k.when(rank.lt(rank_count) & column.lt(width), || {
                let element = match factor {
                    LoraMatrix::A => out.at(rank.mul_wide(width)).at(column),
                    LoraMatrix::B => out.at(column.mul_wide(rank_count)).at(rank),
                };
                element.store(0, result(&|| element.load(0), sum));
            });
        }
    }
}
