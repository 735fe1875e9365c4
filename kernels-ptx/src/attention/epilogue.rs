//! Writing what the lanes of a block have summed.

use retrograph_ptx::build::{Kernel, Ptr, Shared, Value};

use super::config::{Factors, Shape};
use super::loader::Source;
use super::{Patch, own_column, own_row};
use crate::primitives::bf16::pack;

/// Where the rows of a block go, and how.
#[derive(Clone, Copy)]
pub(super) struct Writer<'k> {
    pub(super) kernel: Kernel<'k>,
    pub(super) shape: Shape,
    /// Nobody reads it any more. In bf16 it has room for the rows as f32.
    pub(super) memory: Shared<'k, f32>,
    pub(super) head_dim: Value<'k, u32>,
    /// The first row.
    pub(super) start: Value<'k, u32>,
    /// The sequence in bf16, which is written, too, where it is not null.
    pub(super) rounded: Option<Ptr<'k, u32>>,
}

impl<'k> Writer<'k> {
    /// Writes `factor` times `sums` to rows of `to`.
    pub(super) fn write(
        self,
        to: Source<'k>,
        sums: &[Patch<'k>],
        factor: impl Into<Option<Value<'k, f32>>>,
    ) {
        let factor = factor.into();
        match self.shape.factors {
            Factors::Brain => self.write_lines(to, sums, factor),
            Factors::Single => self.write_quads(to, sums, factor),
        }
    }

    /// Over shared memory, so that threads next to each other write next to each other.
    ///
    /// Two columns of row r lie eight times r mod 4 places further, modulo 32, so that lanes that
    /// store together have banks of their own.
    fn write_lines(self, to: Source<'k>, sums: &[Patch<'k>], factor: Option<Value<'k, f32>>) {
        let (k, width) = (&self.kernel, self.shape.width);
        let place = |row: Value<'k, u32>, column: Value<'k, u32>| {
            self.memory.at(row * width + (column ^ ((row & 3) << 3)))
        };
        let row = own_row(k);
        // Patches are eight columns apart, four of them 32.
        let places = [0, 8, 16, 24].map(|further| place(row, own_column(k) + further));
        for (j, patch) in sums.iter().enumerate() {
            for half in 0..2 {
                let pair = [0, 1].map(|next| patch[half * 2 + next].get());
                let further = j as u32 / 4 * 32 + half as u32 * 8 * width;
                places[j % 4].offset(further.into()).store_vec2(0, pair);
            }
        }
        k.barrier();
        let across = width / 4;
        let (first, column) = (k.tid_x() / across, (k.tid_x() & (across - 1)) * 4);
        k.when(column.lt(self.head_dim), || {
            let (base, offset) = (to.base.at(self.start.mul_wide(to.stride)), to.offset + column);
            let (rows, step) = (self.shape.rows(), self.shape.threads() / across);
            k.range(first, (to.rows - self.start).min(rows), step, |row| {
                let vec4 = scaled(place(row, column).load_vec4(0), factor);
                base.store_vec4(row.mul_add(to.stride, offset), vec4);
                self.round((self.start + row).mul_add(to.stride, offset), vec4);
            });
        });
        k.barrier();
    }

    /// From where they are: of each 16 columns a lane has four in a row.
    fn write_quads(self, to: Source<'k>, sums: &[Patch<'k>], factor: Option<Value<'k, f32>>) {
        let (k, column) = (&self.kernel, (self.kernel.lane() & 3) * 4);
        for half in [0, 2] {
            let row = self.start + own_row(k) + half as u32 * 4;
            k.when(row.lt(to.rows), || {
                let base = to.base.at(row.mul_wide(to.stride)).at(to.offset + column);
                for (j, two) in (0..).zip(sums.chunks_exact(2)) {
                    let vec4 = [0, 1, 2, 3].map(|i: usize| two[i % 2][half + i / 2].get());
                    k.when((column + j * 16).lt(self.head_dim), || {
                        let vec4 = scaled(vec4, factor);
                        base.store_vec4(j * 16, vec4);
                        self.round(row.mul_add(to.stride, to.offset + column + j * 16), vec4);
                    });
                }
            });
        }
    }

    /// Writes a quad, `place` elements into the sequence, as bf16 where that is asked for.
    fn round(self, place: Value<'k, u32>, vec4: [Value<'k, f32>; 4]) {
        let Some(rounded) = self.rounded else { return };
        self.kernel.when(!rounded.is_null(), || {
            let words = [0, 2].map(|i| pack(self.shape.target, [vec4[i], vec4[i + 1]]));
            rounded.at(place >> 1).store_vec2(0, words);
        });
    }
}

fn scaled<'k>(vec4: [Value<'k, f32>; 4], factor: Option<Value<'k, f32>>) -> [Value<'k, f32>; 4] {
    factor.map_or(vec4, |factor| vec4.map(|value| value * factor))
}
