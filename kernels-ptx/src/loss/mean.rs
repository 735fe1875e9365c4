//! Mean loss over the counted tokens: `out = Σ x ÷ max(counted, 1)`.
//!
//! Grid: one block of 256 threads; thread t adds the elements t, t + 256, … in f64.
//! Deterministic: each thread adds in order, and a tree of fixed shape adds the threads.

use retrograph_kernel_abi::loss::{MEAN, MEAN_THREADS as THREADS, MeanParameters};
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::{Kernel, ModuleBuilder};

use crate::primitives::parameters::Declarations;
use crate::primitives::reduce::block_sum_f64;

/// Builds the image.
pub(crate) fn module(target: SmTarget) -> Module {
    ModuleBuilder::new(target).entry(Kernel::build(MEAN.entry(), mean)).build()
}

fn mean(k: &Kernel<'_>) {
    let MeanParameters { x, counted, out, n } = MeanParameters::declare(&mut Declarations(*k));
    k.max_threads(THREADS);

    let sum = k.var(0.0);
    k.range(k.tid_x(), n, THREADS, |i| sum.add_assign(x.load(i).cast::<f64>()));
    let total = block_sum_f64(k, sum.get(), THREADS);
    k.when(k.tid_x().eq(0), || {
        let counted = counted.load(0).max(1).cast::<f64>();
        out.store(0, (total / counted).cast::<f32>());
    });
}
