//! Accumulators of tensor-core kernels, and their mapping to rows and columns of c.

use retrograph_ptx::build::{Kernel, Shared, Value, Var};

use crate::primitives::arith::div_const;
pub(super) use crate::primitives::mma::{AccFragment, acc_row};
use crate::primitives::mma::{LANE_ROWS, fma_fragment, fragment_column, fragment_row};

/// Declares accumulators for `rows` × `columns` elements, initialized to 0: one fragment per 16 × 8
/// elements.
pub(super) fn accumulators<'k>(
    k: &Kernel<'k>,
    [rows, columns]: [u32; 2],
) -> Vec<Vec<AccFragment<'k>>> {
    (0..rows / 16).map(|_| acc_row(k, columns)).collect()
}

/// Adds the products of `tile_k` steps of K to `acc` by fused multiply-adds, `STEPS` steps at a
/// time. `load_a(row, step)` and `load_b(column, step)` load `STEPS` steps of the lane's row of a
/// and column of b.
pub(super) fn multiply_fma<'k, const STEPS: usize>(
    k: &Kernel<'k>,
    tile_k: u32,
    load_a: impl Fn(u32, Value<'k, u32>) -> [Value<'k, f32>; STEPS],
    load_b: impl Fn(u32, Value<'k, u32>) -> [Value<'k, f32>; STEPS],
    acc: &[Vec<AccFragment<'k>>],
) {
    k.range(0, tile_k, STEPS as u32, |step| {
        let n_fragments = acc[0].len() as u32;
        let columns: Vec<_> =
            (0..n_fragments * 2).map(|j| load_b(j / 2 * 8 + j % 2, step)).collect();
        for (i, fragments) in (0..).zip(acc) {
            let rows = LANE_ROWS.map(|row| load_a(i * 16 + row, step));
            for (fragment, columns) in fragments.iter().zip(columns.chunks_exact(2)) {
                fma_fragment(fragment, &rows, columns);
            }
        }
    });
}

/// The position of a warp in the tile of c.
pub(super) struct WarpTile<'k> {
    /// Slice of K of this warp (sliced-K).
    pub(super) slice: Value<'k, u32>,
    /// First row and column.
    pub(super) origin: [Value<'k, u32>; 2],
    /// Distance in rows between fragments of a lane.
    row_stride: u32,
}

impl<'k> WarpTile<'k> {
    /// The tile of a warp for `mma.sync`: `warps[0]` × `warps[1]` warps per slice, each with
    /// `rows` × `columns` elements.
    pub(super) fn of_warp(k: &Kernel<'k>, warps: [u32; 2], [rows, columns]: [u32; 2]) -> Self {
        let (warp, per_slice) = (k.tid_x() >> 5, warps[0] * warps[1]);
        let within = warp & (per_slice - 1);
        let (down, across) = (div_const(within, warps[1]), within & (warps[1] - 1));
        let slice = div_const(warp, per_slice);
        Self { slice, origin: [down * rows, across * columns], row_stride: 16 }
    }

    /// The tile of a warp for `wgmma`: warpgroups are stacked along M with `rows` rows each, and
    /// each warp of a warpgroup has 16 of every 64 rows.
    pub(super) fn of_warpgroup(k: &Kernel<'k>, rows: u32) -> Self {
        let warp = k.tid_x() >> 5;
        let row = (warp >> 2) * rows + (warp & 3) * 16;
        Self { slice: k.constant(0), origin: [row, k.constant(0)], row_stride: 64 }
    }

    /// Row and column of the first pair of a lane.
    fn first_pair(&self, k: &Kernel<'k>) -> [Value<'k, u32>; 2] {
        [self.origin[0] + fragment_row(k), self.origin[1] + fragment_column(k)]
    }

    /// The first of this lane's two rows, for each row of fragments.
    pub(super) fn rows(&self, k: &Kernel<'k>) -> impl Iterator<Item = Value<'k, u32>> {
        let ([row, _], row_stride) = (self.first_pair(k), self.row_stride);
        (0..).map(move |i: u32| row + i * row_stride)
    }

    /// The pairs of adjacent elements of a row that a lane holds, with their row and column offsets
    /// from the first pair.
    fn pairs(
        &self,
        acc: &[Vec<AccFragment<'k>>],
    ) -> impl Iterator<Item = ([u32; 2], [Value<'k, f32>; 2])> {
        let row_stride = self.row_stride;
        (0..).zip(acc).flat_map(move |(i, row)| {
            (0..).zip(row).flat_map(move |(j, fragment)| {
                let [a, b, c, d] = fragment.map(Var::get);
                [([i * row_stride, j * 8], [a, b]), ([i * row_stride + 8, j * 8], [c, d])]
            })
        })
    }

    /// Calls `visit` for each pair of this lane, with its row and column in the tile.
    pub(super) fn for_each_pair(
        &self,
        k: &Kernel<'k>,
        acc: &[Vec<AccFragment<'k>>],
        visit: impl Fn(Value<'k, u32>, Value<'k, u32>, [Value<'k, f32>; 2]),
    ) {
        self.for_each_pair_of(k, [acc], |row, column, [pair]| visit(row, column, pair));
    }

    /// [`Self::for_each_pair`] for several results with the same tile.
    pub(super) fn for_each_pair_of<const N: usize>(
        &self,
        k: &Kernel<'k>,
        acc: [&[Vec<AccFragment<'k>>]; N],
        visit: impl Fn(Value<'k, u32>, Value<'k, u32>, [[Value<'k, f32>; 2]; N]),
    ) {
        let [row, column] = self.first_pair(k);
        let pairs = acc.map(|acc| self.pairs(acc).collect::<Vec<_>>());
        for (index, &([down, across], _)) in pairs[0].iter().enumerate() {
            visit(row + down, column + across, pairs.each_ref().map(|pairs| pairs[index].1));
        }
    }

    /// Stores the pairs of this lane to shared memory, with a row pitch of `pitch` elements.
    pub(super) fn store_pairs(
        &self,
        k: &Kernel<'k>,
        smem: Shared<'k, f32>,
        pitch: u32,
        acc: &[Vec<AccFragment<'k>>],
    ) {
        let [row, column] = self.first_pair(k);
        let first = smem.at(row * pitch + column);
        for ([down, across], pair) in self.pairs(acc) {
            first.store_vec2(down * pitch + across, pair);
        }
    }
}
