//! Column sums: `out[c] (+)= Σ_r x[r, c]`, the gradient of a bias and the second stage of the
//! gradients of gamma and of low-rank updates.
//!
//! Grid: one block of 512 threads for each 32 columns; sixteen threads share a column. Thread l of
//! a column adds the rows l, l + 16, l + 32, …, sixteen of which are on their way at a time: all of
//! those that the gradient of a norm leaves.
//! Deterministic: each thread adds in order, and the first adds the sixteen sums in order.

use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::{Kernel, ModuleBuilder};

/// Columns of one block.
const COLUMNS: u32 = 32;
/// Threads that share one column.
const LANES: u32 = 16;
/// Rows that a thread loads before it adds them.
const AHEAD: u32 = 16;

/// The image for `target`.
pub(crate) fn module(target: SmTarget) -> Module {
    ModuleBuilder::new(target).entry(Kernel::build("column_sum", column_sum)).build()
}

fn column_sum(k: &Kernel<'_>) {
    let x = k.pointer::<f32>("x");
    let out = k.pointer::<f32>("out");
    let rows = k.param::<u32>("rows");
    let columns = k.param::<u32>("columns");
    let accumulate = k.param::<u32>("accumulate").ne(0);
    k.max_threads(COLUMNS * LANES);

    let sums = k.shared::<f32>("sums", (COLUMNS * LANES) as usize);
    let lane = k.tid_x() / COLUMNS;
    let column = k.ctaid_x() * COLUMNS + k.tid_x() % COLUMNS;
    let inside = column.lt(columns);
    let sum = k.var(0.0);
    k.when(inside, || {
        k.range(lane, rows, LANES * AHEAD, |row| {
            let ahead = (0..AHEAD).map(|step| {
                let (row, value) = (row + step * LANES, k.var(0.0));
                k.when(row.lt(rows), || value.set(x.at(row.mul_wide(columns)).load(column)));
                value
            });
            let ahead: Vec<_> = ahead.collect();
            ahead.iter().for_each(|value| sum.add_assign(value.get()));
        });
    });
    sums.store(k.tid_x(), sum.get());
    k.barrier();
    k.when(inside & lane.eq(0), || {
        let column_sums = (0..LANES).map(|lane| sums.load(k.tid_x() + lane * COLUMNS));
        let total = column_sums.reduce(|sum, next| sum + next).expect("there are lanes");
        let total = k.var(total);
        k.when(accumulate, || total.update(|total| out.load(column) + total));
        out.store(column, total.get());
    });
}
