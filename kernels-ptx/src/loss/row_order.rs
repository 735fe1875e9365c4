//! Rows in another order, and back: `gather_rows` computes `out[i] = x[order[i]]` for
//! `i < row_limit` and zeros for other i; `scatter_rows` computes `out[order[i]] = x[i]` for
//! `i < row_limit`, and zeros in the rows `order[i]` of other i.
//!
//! An i whose `order[i]` is not a row is skipped.
//!
//! Grid: block (i, j) copies the j-th group of 16-byte vectors of row i, one per thread. If a row
//! is not aligned to 16 bytes, a thread copies its vector in steps of two bytes.
//! Deterministic: one thread writes each element, if `order` is a permutation.

use retrograph_kernel_abi::loss::{GATHER_ROWS, RowOrderParameters, SCATTER_ROWS};
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::{Kernel, ModuleBuilder, Ptr};

use crate::primitives::parameters::Declarations;
use crate::primitives::registers::{Registers, registers, set, values};

/// Bytes that a thread copies.
const VECTOR: u32 = 16;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Gather,
    Scatter,
}

/// Builds the image.
pub(crate) fn module(target: SmTarget) -> Module {
    ModuleBuilder::new(target)
        .entry(Kernel::build(GATHER_ROWS.entry(), |k| copy_rows(k, Direction::Gather)))
        .entry(Kernel::build(SCATTER_ROWS.entry(), |k| copy_rows(k, Direction::Scatter)))
        .build()
}

fn copy_rows(k: &Kernel<'_>, direction: Direction) {
    let RowOrderParameters { x, order, row_limit, out, rows, row_bytes } =
        RowOrderParameters::declare(&mut Declarations(*k));

    let row = k.ctaid_x();
    let other = order.load(row);
    k.return_if(other.ge(rows));
    let copies = row.lt(row_limit.load(0));
    let [from, to] = match direction {
        Direction::Gather => [other, row],
        Direction::Scatter => [row, other],
    };
    let first = (k.ctaid_y() * k.ntid_x() + k.tid_x()) * VECTOR;
    let from = x.address() + from.mul_wide(row_bytes) + first.cast::<u64>();
    let to = out.address() + to.mul_wide(row_bytes) + first.cast::<u64>();
    let aligned = ((from | to) & u64::from(VECTOR - 1)).eq(0) & (first + VECTOR).le(row_bytes);
    let [from, to] = [from, to].map(Ptr::<u32>::from_address);
    let by_vector = || {
        let words: Registers<'_, 4, u32> = registers(k, 0);
        k.when(copies, || set(&words, from.load_vec4(0)));
        to.store_vec4(0, values(&words));
    };
    let by_two_bytes = || {
        for at in 0..VECTOR / 2 {
            k.when((first + 2 * at).lt(row_bytes), || {
                let word = k.var(0u32);
                k.when(copies, || word.set(from.load_u16(k.constant(at))));
                to.store_u16(k.constant(at), word.get());
            });
        }
    };
    k.when_else(aligned, by_vector, by_two_bytes);
}
