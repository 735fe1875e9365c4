//! From the sums that threads hold to c.

use retrograph_ptx::build::{Kernel, Shared, Value, Var};

use super::sizes::{Parameters, over};
use super::tile::{Accumulators, Place, Tile};

/// Where the elements of c go.
struct Writer<'k> {
    kernel: Kernel<'k>,
    given: Parameters<'k>,
    /// First row and column of the tile.
    origin: [Value<'k, u32>; 2],
}

/// Writes what the block has summed. Split tiles add their groups first.
pub(super) fn finish<'k>(
    k: &Kernel<'k>,
    tile: &Tile,
    (given, origin): (Parameters<'k>, [Value<'k, u32>; 2]),
    (memory, place, sums): (Shared<'k, f32>, &Place<'k>, &Accumulators<'k>),
) {
    let writer = Writer { kernel: *k, given, origin };
    if tile.split == 1 {
        each_quad(tile, place, sums, |_, row, column, quad| {
            writer.write(row, column, quad.map(Var::get));
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
        writer.write_groups(tile, (band, memory));
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
    /// Adds the groups of a band in ascending order.
    fn write_groups(&self, tile: &Tile, (band, memory): (u32, Shared<'k, f32>)) {
        let k = self.kernel;
        let (elements, across) = (tile.band_rows() * tile.columns, tile.columns / 4);
        for first in (0..elements / 4).step_by(tile.threads() as usize) {
            let thread = k.tid_x() + first;
            k.when(thread.lt(elements / 4), || {
                let first = memory.at(thread * 4);
                let mut sum = first.load_vec4(0);
                for group in 1..tile.split {
                    let next = first.offset(i64::from(group * elements)).load_vec4(0);
                    sum = [0, 1, 2, 3].map(|j| sum[j] + next[j]);
                }
                let row = over(thread, across) + band * tile.band_rows();
                self.write(row, (thread & (across - 1)) * 4, sum);
            });
        }
    }

    /// Writes four elements of a row, as far as they lie in c.
    fn write(&self, row: Value<'k, u32>, column: Value<'k, u32>, sums: [Value<'k, f32>; 4]) {
        let k = self.kernel;
        let (row, column) = (self.origin[0] + row, self.origin[1] + column);
        k.when(row.lt(self.given.m) & column.lt(self.given.n), || {
            let index = row.mul_add(self.given.c.leading, column);
            k.when_else(
                self.given.c.quads,
                || self.write_quad(index, column, sums),
                || self.write_four(index, column, sums),
            );
        });
    }

    /// All four at once: c has a multiple of 4 columns.
    fn write_quad(&self, index: Value<'k, u32>, column: Value<'k, u32>, sums: [Value<'k, f32>; 4]) {
        let (k, c) = (self.kernel, self.given.c);
        let place = c.plane.at(index);
        let values = sums.map(|sum| k.var(sum * c.alpha));
        k.when(!c.bias.is_null(), || {
            // The bias need not be aligned.
            let bias = c.bias.at(column);
            (0..).zip(values).for_each(|(j, value)| value.add_assign(bias.load(j)));
        });
        k.when(c.accumulate, || {
            let before = place.load_vec4(0);
            values.into_iter().zip(before).for_each(|(value, before)| value.add_assign(before));
        });
        place.store_vec4(0, values.map(Var::get));
    }

    /// One by one.
    fn write_four(&self, index: Value<'k, u32>, column: Value<'k, u32>, sums: [Value<'k, f32>; 4]) {
        let (k, c) = (self.kernel, self.given.c);
        let (place, bias) = (c.plane.at(index), c.bias.at(column));
        for (j, sum) in (0u32..).zip(sums) {
            k.when((column + j).lt(self.given.n), || {
                let value = k.var(sum * c.alpha);
                k.when(!c.bias.is_null(), || value.add_assign(bias.load(j)));
                k.when(c.accumulate, || value.add_assign(place.load(j)));
                place.store(j, value);
            });
        }
    }
}
