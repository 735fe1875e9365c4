//! Log-ratios of sequences: `ratio = Σ (reference − policy)` over the losses of a sequence, which
//! are negative log-probabilities.
//!
//! Grid: one block of 256 threads per sequence; thread t adds the tokens t, t + 256, … in f64.
//! Deterministic: each thread adds in order, and a tree of fixed shape adds the threads.

use retrograph_kernel_abi::loss::{LOG_RATIOS, LOG_RATIOS_THREADS as THREADS, LogRatiosParameters};
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::{Kernel, ModuleBuilder};

use crate::primitives::parameters::Declarations;
use crate::primitives::reduce::block_sum_f64;

/// Builds the image.
pub(crate) fn module(target: SmTarget) -> Module {
    ModuleBuilder::new(target).entry(Kernel::build(LOG_RATIOS.entry(), log_ratios)).build()
}

fn log_ratios(k: &Kernel<'_>) {
    let LogRatiosParameters { policy, reference, ratios, seq } =
        LogRatiosParameters::declare(&mut Declarations(*k));
    k.max_threads(THREADS);

    let sequence = k.ctaid_x();
    let first = sequence * seq;
    let sum = k.var(0.0);
    k.range(k.tid_x(), seq, THREADS, |token| {
        let [own, other] = [policy, reference].map(|losses| losses.load(first + token));
        sum.add_assign(other.cast::<f64>() - own.cast::<f64>());
    });
    let total = block_sum_f64(k, sum.get(), THREADS);
    k.when(k.tid_x().eq(0), || ratios.store(sequence, total));
}
