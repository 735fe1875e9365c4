//! Column sums: `out[c] (+)= Σ_r x[r, c]`. Computes bias gradients, and adds the partial gradients
//! of RMSNorm weights and of LoRA matrices.
//!
//! Grid: one block of 512 threads per 32 columns; sixteen threads share a column. Thread l of a
//! column adds the rows l, l + 16, l + 32, … and has up to sixteen loads in flight.
//! Deterministic: each thread adds in order, and one thread adds the sixteen sums in order.

use retrograph_kernel_abi::norm::{
    COLUMN_SUM, COLUMN_SUM_COLUMNS as COLUMNS, COLUMN_SUM_LANES as LANES, ColumnSumParameters,
};
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::{Kernel, ModuleBuilder};

use crate::primitives::parameters::Declarations;

/// Rows that a thread loads before it adds them.
const LOADS_IN_FLIGHT: u32 = 16;

/// Builds the image.
pub(crate) fn module(target: SmTarget) -> Module {
    ModuleBuilder::new(target).entry(Kernel::build(COLUMN_SUM.entry(), column_sum)).build()
}

fn column_sum(k: &Kernel<'_>) {
    let ColumnSumParameters { x, out, rows, columns, accumulate } =
        ColumnSumParameters::declare(&mut Declarations(*k));
    let accumulate = accumulate.ne(0);
    k.max_threads(COLUMNS * LANES);

    let sums = k.shared::<f32>("sums", (COLUMNS * LANES) as usize);
    let lane = k.tid_x() / COLUMNS;
    let column = k.ctaid_x() * COLUMNS + k.tid_x() % COLUMNS;
    let inside = column.lt(columns);
    let sum = k.var(0.0);
    k.when(inside, || {
        k.range(lane, rows, LANES * LOADS_IN_FLIGHT, |row| {
            let in_flight = (0..LOADS_IN_FLIGHT).map(|step| {
                let (row, value) = (row + step * LANES, k.var(0.0));
                k.when(row.lt(rows), || value.set(x.at(row.mul_wide(columns)).load(column)));
                value
            });
            let in_flight: Vec<_> = in_flight.collect();
            in_flight.iter().for_each(|value| sum.add_assign(value.get()));
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
