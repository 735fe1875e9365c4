//! Scales rows: `out[r, c] = x[r, c] · scales[r ÷ rows_of_factor]`.
//!
//! Grid: one block of 256 threads per row; thread t has the columns t, t + 256, …
//! Deterministic: one thread computes each element from one input.

use retrograph_kernel_abi::loss::{SCALE_ROWS, SCALE_ROWS_THREADS as THREADS, ScaleRowsParameters};
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::{Kernel, ModuleBuilder};

use crate::primitives::parameters::Declarations;

/// Builds the image.
pub(crate) fn module(target: SmTarget) -> Module {
    ModuleBuilder::new(target).entry(Kernel::build(SCALE_ROWS.entry(), scale_rows)).build()
}

fn scale_rows(k: &Kernel<'_>) {
    let ScaleRowsParameters { x, scales, out, width, rows_of_factor } =
        ScaleRowsParameters::declare(&mut Declarations(*k));
    k.max_threads(THREADS);

    let row = k.ctaid_x();
    let factor = row / rows_of_factor;
    let first = row * width;
    k.range(k.tid_x(), width, THREADS, |column| {
        out.store(first + column, x.load(first + column) * scales.load(factor));
    });
}
