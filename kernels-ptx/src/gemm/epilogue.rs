//! Epilogue: scales the accumulators, adds bias and previous values, and writes c.

use retrograph_ptx::SmTarget;
use retrograph_ptx::build::{Kernel, Ptr, Shared, Value, Var};

use super::params::GemmParams;
use crate::primitives::arith::{div_const, rem_const};
use crate::primitives::bf16::pack;

/// The epilogue of a block.
pub(super) struct Epilogue<'k> {
    pub(super) kernel: Kernel<'k>,
    /// The target, which determines the conversion to bf16; `None` if c is always f32.
    pub(super) bf16_target: Option<SmTarget>,
    pub(super) params: GemmParams<'k>,
    /// First row and column of the block's tile.
    pub(super) origin: [Value<'k, u32>; 2],
}

/// Accumulators in shared memory: a range of rows of each slice, slice after slice.
pub(super) struct SliceSums<'k> {
    /// The rows of the first slice.
    pub(super) smem: Shared<'k, f32>,
    /// Number of slices.
    pub(super) count: u32,
    /// First row of the range in the tile.
    pub(super) first_row: u32,
    /// Rows and columns of the range.
    pub(super) extent: [u32; 2],
    /// Row pitch in elements.
    pub(super) pitch: u32,
    /// Threads of the block.
    pub(super) threads: u32,
}

impl<'k> Epilogue<'k> {
    /// Adds the slices in ascending order and writes the sums.
    pub(super) fn write_slices(&self, slices: &SliceSums<'k>) {
        let k = self.kernel;
        let [rows, columns] = slices.extent;
        let (elements, vec4s_per_row) = (rows * columns, columns / 4);
        for first in (0..elements / 4).step_by(slices.threads as usize) {
            let index = k.tid_x() + first;
            k.when(index.lt(elements / 4), || {
                let (row, column) =
                    (div_const(index, vec4s_per_row), rem_const(index, vec4s_per_row) * 4);
                let first = slices.smem.at(row * slices.pitch + column);
                let mut sum = first.load_vec4(0);
                for slice in 1..slices.count {
                    let offset = i64::from(slice * rows * slices.pitch);
                    let next = first.offset(offset).load_vec4(0);
                    sum = [0, 1, 2, 3].map(|j| sum[j] + next[j]);
                }
                self.write(row + slices.first_row, column, &sum);
            });
        }
    }

    /// Scales two or four consecutive elements of a row of the tile, adds the bias, and writes
    /// them, if they are within c.
    pub(super) fn write(
        &self,
        row: Value<'k, u32>,
        column: Value<'k, u32>,
        sums: &[Value<'k, f32>],
    ) {
        let (k, c) = (self.kernel, self.params.c);
        self.when_inside([row, column], |index, column| {
            let values: Vec<_> = sums.iter().map(|&sum| k.var(sum * c.alpha)).collect();
            k.when(!c.bias.is_null(), || {
                // Columns past the end are not written, so their bias does not matter.
                let (bias, last) = (c.bias.at(column), self.params.n - 1 - column);
                (0u32..)
                    .zip(&values)
                    .for_each(|(j, value)| value.add_assign(bias.load(last.min(j))));
            });
            self.store(index, column, &values);
        });
    }

    /// As [`Self::write`], for values that are scaled and have the bias.
    pub(super) fn write_scaled(
        &self,
        row: Value<'k, u32>,
        column: Value<'k, u32>,
        values: &[Value<'k, f32>],
    ) {
        self.when_inside([row, column], |index, column| {
            let values: Vec<_> = values.iter().map(|&value| self.kernel.var(value)).collect();
            self.store(index, column, &values);
        });
    }

    /// Calls `body` with the index and the column of an element of the tile, if it is within c.
    fn when_inside(
        &self,
        [row, column]: [Value<'k, u32>; 2],
        body: impl FnOnce(Value<'k, u32>, Value<'k, u32>),
    ) {
        let (row, column) = (self.origin[0] + row, self.origin[1] + column);
        let inside = row.lt(self.params.m) & column.lt(self.params.n);
        self.kernel.when(inside, || body(row.mad_lo(self.params.c.leading_dim, column), column));
    }

    fn store(&self, index: Value<'k, u32>, column: Value<'k, u32>, values: &[Var<'k, f32>]) {
        let k = self.kernel;
        let store_f32 = || {
            k.when_else(
                self.params.c.vectorized,
                || self.store_vector(index, values),
                || self.store_scalars(index, column, values),
            );
        };
        match self.params.c.bf16.zip(self.bf16_target) {
            None => store_f32(),
            Some(((plane, is_bf16), target)) => {
                let store_bf16 = || self.store_bf16(plane, target, index, column, values);
                k.when_else(is_bf16, store_bf16, store_f32);
            }
        }
    }

    /// Stores to a bf16 c, which never accumulates.
    fn store_bf16(
        &self,
        plane: Ptr<'k, u32>,
        target: SmTarget,
        index: Value<'k, u32>,
        column: Value<'k, u32>,
        values: &[Var<'k, f32>],
    ) {
        let k = self.kernel;
        let pair = |pair: &[Var<'k, f32>]| pack(target, [pair[0].get(), pair[1].get()]);
        let words: Vec<_> = values.chunks_exact(2).map(pair).collect();
        let vectorized = || match words[..] {
            [word] => plane.store(index >> 1, word),
            [low, high] => plane.store_vec2(index >> 1, [low, high]),
            _ => unreachable!("two or four elements are written"),
        };
        let scalars = || {
            for (j, word) in (0u32..).step_by(2).zip(&words) {
                for (j, half) in [(j, *word), (j + 1, *word >> 16)] {
                    let inside = (column + j).lt(self.params.n);
                    k.when(inside, || plane.store_u16(index + j, half));
                }
            }
        };
        k.when_else(self.params.c.vectorized, vectorized, scalars);
    }

    /// Stores one vector to an f32 c whose rows have a multiple of 4 elements, and adds previous
    /// values.
    fn store_vector(&self, index: Value<'k, u32>, values: &[Var<'k, f32>]) {
        let (k, c) = (self.kernel, self.params.c);
        let to = c.plane.at(index);
        let add = |before: &[Value<'k, f32>]| {
            values.iter().zip(before).for_each(|(value, &before)| value.add_assign(before));
        };
        match values[..] {
            [a, b] => {
                k.when(c.accumulate, || add(&to.load_vec2(0)));
                to.store_vec2(0, [a, b].map(Var::get));
            }
            [a, b, x, y] => {
                k.when(c.accumulate, || add(&to.load_vec4(0)));
                to.store_vec4(0, [a, b, x, y].map(Var::get));
            }
            _ => unreachable!("two or four elements are written"),
        }
    }

    /// As [`Self::store_vector`], element by element.
    fn store_scalars(
        &self,
        index: Value<'k, u32>,
        column: Value<'k, u32>,
        values: &[Var<'k, f32>],
    ) {
        let (k, c) = (self.kernel, self.params.c);
        let to = c.plane.at(index);
        for (j, &value) in (0u32..).zip(values) {
            k.when((column + j).lt(self.params.n), || {
                k.when(c.accumulate, || value.add_assign(to.load(j)));
                to.store(j, value);
            });
        }
    }
}

/// Calls `body` with the index of the bf16 word of a pair of elements, if the pair is within c.
pub(super) fn when_inside<'k>(
    params: &GemmParams<'k>,
    origin: [Value<'k, u32>; 2],
    [row, column]: [Value<'k, u32>; 2],
    body: impl FnOnce(Value<'k, u32>),
) {
    let (row, column) = (origin[0] + row, origin[1] + column);
    let inside = row.lt(params.m) & column.lt(params.n);
    row.kernel().when(inside, || body(row.mad_lo(params.c.leading_dim, column) >> 1));
}
