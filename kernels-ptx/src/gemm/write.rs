//! From the sums that threads hold to c.

use retrograph_ptx::SmTarget;
use retrograph_ptx::build::{Kernel, Ptr, Shared, Value, Var};

use super::sizes::{Parameters, over, rest};
use super::tile::{Accumulators, Place, Tile};
use crate::primitives::bf16::pack;

/// Where the elements of c go.
pub(super) struct Writer<'k> {
    pub(super) kernel: Kernel<'k>,
    /// Where c may be bf16, the target, which says how that is rounded.
    pub(super) rounds: Option<SmTarget>,
    pub(super) given: Parameters<'k>,
    /// First row and column of the tile.
    pub(super) origin: [Value<'k, u32>; 2],
}

/// What groups of threads have summed, one after another in shared memory, each a run of rows.
pub(super) struct Groups<'k> {
    /// The sums of the first group.
    pub(super) memory: Shared<'k, f32>,
    /// Number of groups.
    pub(super) count: u32,
    /// Row of the tile that the first row of the run is.
    pub(super) first_row: u32,
    /// Rows and columns of the run.
    pub(super) extent: [u32; 2],
    /// Elements from one row to the next.
    pub(super) pitch: u32,
    /// Threads of the block.
    pub(super) threads: u32,
}

/// Writes what the block has summed. Split tiles add their groups first.
pub(super) fn finish<'k>(
    k: &Kernel<'k>,
    tile: &Tile,
    (given, origin): (Parameters<'k>, [Value<'k, u32>; 2]),
    (memory, place, sums): (Shared<'k, f32>, &Place<'k>, &Accumulators<'k>),
) {
    let writer = Writer { kernel: *k, rounds: None, given, origin };
    if tile.split == 1 {
        each_quad(tile, place, sums, |_, row, column, quad| {
            writer.write(row, column, &quad.map(Var::get));
        });
        return;
    }
    for band in 0..tile.bands() {
        if band > 0 {
            // Nobody may overwrite a band while another thread reads it.
            k.barrier();
        }
        gather(tile, (band, memory), (place, sums));
        k.barrier();
        writer.write_groups(&Groups {
            memory,
            count: tile.split,
            first_row: band * tile.band_rows(),
            extent: [tile.band_rows(), tile.columns],
            pitch: tile.columns,
            threads: tile.threads(),
        });
    }
}

/// Visits this thread's quads with their band, and row and column in the tile.
fn each_quad<'k>(
    tile: &Tile,
    place: &Place<'k>,
    sums: &Accumulators<'k>,
    mut visit: impl FnMut(u32, Value<'k, u32>, Value<'k, u32>, [Var<'k, f32>; 4]),
) {
    let columns_apart = tile.columns / (tile.thread_columns / 4);
    for (i, held) in (0..).zip(sums) {
        let row = place.row * 4 + (i / 4 * tile.band_rows() + i % 4);
        for (j, quad) in (0..).zip(held.chunks_exact(4)) {
            let column = place.column * 4 + j * columns_apart;
            visit(i / 4, row, column, [quad[0], quad[1], quad[2], quad[3]]);
        }
    }
}

/// Puts what every group has summed of one band into shared memory, which nobody reads any more.
fn gather<'k>(
    tile: &Tile,
    (wanted, memory): (u32, Shared<'k, f32>),
    (place, sums): (&Place<'k>, &Accumulators<'k>),
) {
    let elements = tile.band_rows() * tile.columns;
    let group = memory.at(place.group * elements);
    each_quad(tile, place, sums, |band, row, column, quad| {
        if band == wanted {
            let place = (row - band * tile.band_rows()) * tile.columns + column;
            group.store_vec4(place, quad.map(Var::get));
        }
    });
}

impl<'k> Writer<'k> {
    /// Adds the groups in ascending order.
    pub(super) fn write_groups(&self, groups: &Groups<'k>) {
        let k = self.kernel;
        let [rows, columns] = groups.extent;
        let (elements, across) = (rows * columns, columns / 4);
        for first in (0..elements / 4).step_by(groups.threads as usize) {
            let thread = k.tid_x() + first;
            k.when(thread.lt(elements / 4), || {
                let (row, column) = (over(thread, across), rest(thread, across) * 4);
                let first = groups.memory.at(row * groups.pitch + column);
                let mut sum = first.load_vec4(0);
                for group in 1..groups.count {
                    let further = i64::from(group * rows * groups.pitch);
                    let next = first.offset(further).load_vec4(0);
                    sum = [0, 1, 2, 3].map(|j| sum[j] + next[j]);
                }
                self.write(row + groups.first_row, column, &sum);
            });
        }
    }

    /// Writes two or four elements of a row, as far as they lie in c.
    pub(super) fn write(
        &self,
        row: Value<'k, u32>,
        column: Value<'k, u32>,
        sums: &[Value<'k, f32>],
    ) {
        let k = self.kernel;
        let (row, column) = (self.origin[0] + row, self.origin[1] + column);
        k.when(row.lt(self.given.m) & column.lt(self.given.n), || {
            let index = row.mul_add(self.given.c.leading, column);
            let single = || {
                k.when_else(
                    self.given.c.quads,
                    || self.write_vector(index, column, sums),
                    || self.write_each(index, column, sums),
                );
            };
            match self.given.c.rounded.zip(self.rounds) {
                None => single(),
                Some(((plane, is), target)) => {
                    let rounded = || self.write_rounded((plane, target), (index, column), sums);
                    k.when_else(is, rounded, single);
                }
            }
        });
    }

    /// As bf16, which is never added to.
    fn write_rounded(
        &self,
        (plane, target): (Ptr<'k, u32>, SmTarget),
        (index, column): (Value<'k, u32>, Value<'k, u32>),
        sums: &[Value<'k, f32>],
    ) {
        let (k, c) = (self.kernel, self.given.c);
        let values: Vec<_> = sums.iter().map(|&sum| k.var(sum * c.alpha)).collect();
        k.when(!c.bias.is_null(), || {
            // Behind the last column there is no bias, and nothing is written.
            let bias = c.bias.at(column);
            let last = self.given.n - 1 - column;
            (0u32..).zip(&values).for_each(|(j, value)| value.add_assign(bias.load(last.min(j))));
        });
        let pair = |pair: &[Var<'k, f32>]| pack(target, [pair[0].get(), pair[1].get()]);
        let words: Vec<_> = values.chunks_exact(2).map(pair).collect();
        let whole = || match words[..] {
            [word] => plane.store(index >> 1, word),
            [low, high] => plane.store_vec2(index >> 1, [low, high]),
            _ => unreachable!("two or four elements are written"),
        };
        let each = || {
            for (j, word) in (0u32..).step_by(2).zip(&words) {
                for (j, half) in [(j, *word), (j + 1, *word >> 16)] {
                    let inside = (column + j).lt(self.given.n);
                    k.when(inside, || plane.store_u16(index + j, half));
                }
            }
        };
        k.when_else(c.quads, whole, each);
    }

    /// All at once: c has a multiple of 4 columns.
    fn write_vector(&self, index: Value<'k, u32>, column: Value<'k, u32>, sums: &[Value<'k, f32>]) {
        let (k, c) = (self.kernel, self.given.c);
        let place = c.plane.at(index);
        let values: Vec<_> = sums.iter().map(|&sum| k.var(sum * c.alpha)).collect();
        k.when(!c.bias.is_null(), || {
            // The bias need not be aligned.
            let bias = c.bias.at(column);
            (0..).zip(&values).for_each(|(j, value)| value.add_assign(bias.load(j)));
        });
        let add = |before: &[Value<'k, f32>]| {
            values.iter().zip(before).for_each(|(value, &before)| value.add_assign(before));
        };
        match values[..] {
            [a, b] => {
                k.when(c.accumulate, || add(&place.load_vec2(0)));
                place.store_vec2(0, [a, b].map(Var::get));
            }
            [a, b, x, y] => {
                k.when(c.accumulate, || add(&place.load_vec4(0)));
                place.store_vec4(0, [a, b, x, y].map(Var::get));
            }
            _ => unreachable!("two or four elements are written"),
        }
    }

    /// One by one.
    fn write_each(&self, index: Value<'k, u32>, column: Value<'k, u32>, sums: &[Value<'k, f32>]) {
        let (k, c) = (self.kernel, self.given.c);
        let (place, bias) = (c.plane.at(index), c.bias.at(column));
        for (j, &sum) in (0u32..).zip(sums) {
            k.when((column + j).lt(self.given.n), || {
                let value = k.var(sum * c.alpha);
                k.when(!c.bias.is_null(), || value.add_assign(bias.load(j)));
                k.when(c.accumulate, || value.add_assign(place.load(j)));
                place.store(j, value);
            });
        }
    }
}
