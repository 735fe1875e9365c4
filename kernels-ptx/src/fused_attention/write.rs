//! Writing what the lanes of a block have summed, over shared memory, so that threads next to each
//! other write next to each other.

use retrograph_ptx::build::{Kernel, Shared, Value};

use super::panel::Source;
use super::{Patch, ROWS, THREADS, own_column, own_row};

/// Writes `factor` times `sums` to the rows of `to` from `start`. Nobody reads `memory` any more,
/// which has room for the rows as f32.
///
/// Two columns of row r lie eight times r mod 4 places further, modulo 32, so that lanes that
/// store together have banks of their own.
pub(super) fn write<'k>(
    (k, memory): (&Kernel<'k>, Shared<'k, f32>),
    (to, start): (Source<'k>, Value<'k, u32>),
    (width, head_dim): (u32, Value<'k, u32>),
    (sums, factor): (&[Patch<'k>], Value<'k, f32>),
) {
    let place = |row: Value<'k, u32>, column: Value<'k, u32>| {
        memory.at(row * width + (column ^ ((row & 3) << 3)))
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
    k.when(column.lt(head_dim), || {
        let (base, offset) = (to.base.at(start.mul_wide(to.stride)), to.offset + column);
        k.range(first, (to.rows - start).min(ROWS), THREADS / across, |row| {
            let quad = place(row, column).load_vec4(0);
            base.store_vec4(row.mul_add(to.stride, offset), quad.map(|value| value * factor));
        });
    });
}
