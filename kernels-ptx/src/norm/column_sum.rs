//! Column sums: `out[c] (+)= Σ_r x[r, c]`. Gives the gradient of a bias, and adds the partial
//! gradients of RMSNorm weights and of LoRA matrices.
//!
//! Grid: one block for a run of columns, with as many threads for each column as
//! [`COLUMN_SUM_BLOCKS`] says. The entry for many rows has short runs and many threads per column:
//! biases have few columns, and their gradients thousands of rows. Thread l of a column adds the
//! rows l, l + lanes, … and has up to sixteen loads in flight.
//!
//! Deterministic: each thread adds in order, and one thread adds the sums of a column in order.

use retrograph_kernel_abi::norm::{COLUMN_SUM, COLUMN_SUM_BLOCKS, ColumnSumParameters};
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::{Kernel, ModuleBuilder};

use crate::primitives::parameters::Declarations;

/// Rows that a thread loads before it adds them.
const LOADS_IN_FLIGHT: u32 = 16;

/// Builds the image.
pub(crate) fn module(target: SmTarget) -> Module {
    let entries = COLUMN_SUM.entries.iter().zip(COLUMN_SUM_BLOCKS);
    let entries = entries.map(|(name, block)| Kernel::build(name, |k| column_sum(k, block)));
    entries.fold(ModuleBuilder::new(target), ModuleBuilder::entry).build()
}

fn column_sum(k: &Kernel<'_>, [block_columns, lanes]: [u32; 2]) {
    let ColumnSumParameters { x, out, rows, columns, accumulate } =
        ColumnSumParameters::declare(&mut Declarations(*k));
    let accumulate = accumulate.ne(0);
    k.max_threads(block_columns * lanes);

    let sums = k.shared::<f32>("sums", (block_columns * lanes) as usize);
    let lane = k.tid_x() / block_columns;
    let column = k.ctaid_x() * block_columns + k.tid_x() % block_columns;
    let inside = column.lt(columns);
    let sum = k.var(0.0);
    k.when(inside, || {
        k.range(lane, rows, lanes * LOADS_IN_FLIGHT, |row| {
            let in_flight = (0..LOADS_IN_FLIGHT).map(|step| {
                let (row, value) = (row + step * lanes, k.var(0.0));
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
        let column_sums = (0..lanes).map(|lane| sums.load(k.tid_x() + lane * block_columns));
        let total = column_sums.reduce(|sum, next| sum + next).expect("there are threads");
        let total = k.var(total);
        k.when(accumulate, || total.update(|total| out.load(column) + total));
        out.store(column, total.get());
    });
}
