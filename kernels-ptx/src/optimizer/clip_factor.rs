//! Clip factor of the gradients: `norm = sqrt(Σ partials)`, `scale = min(1, max_norm / norm)`.
//!
//! If the norm or the loss (if given) is not finite, `scale` is 0 and `halt` (if given) becomes
//! `step + 1`, unless it is already set. NaN counts as a failure.
//!
//! Grid: one block of 1024 threads; thread t adds the partial sums t, t + 1024, … in f64, and loads
//! four at a time.
//! Deterministic: each thread adds in order, and a tree of fixed shape adds the threads.

use retrograph_kernel_abi::optimizer::{
    CLIP_FACTOR, CLIP_FACTOR_LOADS as LOADS, CLIP_FACTOR_THREADS as THREADS, ClipFactorParameters,
};
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::{Kernel, ModuleBuilder};

use crate::primitives::parameters::Declarations;
use crate::primitives::reduce::block_sum_f64;

/// Builds the image.
pub(crate) fn module(target: SmTarget) -> Module {
    ModuleBuilder::new(target).entry(Kernel::build(CLIP_FACTOR.entry(), clip_factor)).build()
}

fn clip_factor(k: &Kernel<'_>) {
    let ClipFactorParameters { partials, scale, norm: norms, loss, step, halt, n, max_norm } =
        ClipFactorParameters::declare(&mut Declarations(*k));
    k.max_threads(THREADS);

    let sum = k.var(0.0);
    k.range(k.tid_x(), n, LOADS * THREADS, |first| {
        let at = |load| first + load * THREADS;
        let loaded: Vec<_> = (0..LOADS).map(|load| partials.load(at(load).min(n - 1))).collect();
        for (load, partial) in (0..).zip(loaded) {
            sum.add_assign(at(load).lt(n).select(partial, 0.0));
        }
    });
    let total = block_sum_f64(k, sum.get(), THREADS);
    k.return_if(k.tid_x().ne(0));

    let norm = total.sqrt();
    let rounded = norm.cast::<f32>();
    let failed = k.var(rounded.is_finite().select(0, 1));
    k.when(!loss.is_null(), || {
        let loss_failed = loss.load(0).is_finite().select(0, 1);
        failed.update(|failed| failed | loss_failed);
    });
    let failed = failed.get().ne(0);
    let max_norm = max_norm.cast::<f64>();
    let factor = norm.gt(max_norm).select(max_norm / norm, 1.0).cast::<f32>();
    scale.store(0, failed.select(0.0, factor));
    norms.store(0, rounded);
    k.when(failed & !halt.is_null(), || {
        k.when(halt.load(0).eq(0), || halt.store(0, step.load(0) + 1));
    });
}
