//! Direct preference optimization (Rafailov et al., arXiv 2305.18290), with label smoothing as in
//! conservative DPO: for the log-ratios of a pair, with ε the probability of a wrong label,
//!
//! ```text
//! reward = β · ratio
//! x      = reward of chosen − reward of rejected
//! loss   = −(1 − ε) · ln σ(x) − ε · ln σ(−x)
//! weight = β · ((1 − ε) · σ(−x) − ε · σ(x))
//! ```
//! The weight is the derivative of the loss with respect to the negative log-probability of the
//! chosen sequence. The derivative of the rejected one is the negative weight.
//!
//! `−ln σ(x) = max(−x, 0) + ln(1 + e)` with `e = exp(−|x|)`. The logarithm of the rounded `1 + e`
//! is corrected by its rounding error (Kahan).
//!
//! x is rounded to f32 once, so that a loss has a relative error of up to |x| · 2^-24.
//!
//! Grid: one thread per pair. Deterministic: one thread computes each pair.

use retrograph_kernel_abi::loss::{
    PREFERENCE, PREFERENCE_THREADS as THREADS, PreferenceParameters,
};
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::{Kernel, ModuleBuilder, Value};

use crate::primitives::parameters::Declarations;

/// Builds the image.
pub(crate) fn module(target: SmTarget) -> Module {
    ModuleBuilder::new(target).entry(Kernel::build(PREFERENCE.entry(), preference)).build()
}

fn preference(k: &Kernel<'_>) {
    let parameters = PreferenceParameters::declare(&mut Declarations(*k));
    let PreferenceParameters { ratios, losses, chosen, rejected, correct, .. } = parameters;
    let PreferenceParameters { weights, pairs, beta, label_smoothing: wrong, .. } = parameters;
    k.max_threads(THREADS);
    let pair = k.ctaid_x() * k.ntid_x() + k.tid_x();
    k.return_if(pair.ge(pairs));

    let first = pair * 2;
    let [better, worse] = [ratios.load(first), ratios.load(first + 1)];
    let beta_f64 = beta.cast::<f64>();
    let x = (beta_f64 * (better - worse)).cast::<f32>();
    let right = 1.0 - wrong;
    losses.store(pair, right * softplus(-x) + wrong * softplus(x));
    let weight = beta * (right * sigmoid(-x) - wrong * sigmoid(x));
    weights.store(first, weight);
    weights.store(first + 1, -weight);
    chosen.store(pair, (beta_f64 * better).cast::<f32>());
    rejected.store(pair, (beta_f64 * worse).cast::<f32>());
    correct.store(pair, x.gt(0.0).select(1.0, 0.0));
}

/// `ln(1 + exp(x))`.
fn softplus<'k>(x: Value<'k, f32>) -> Value<'k, f32> {
    let e = (-x.abs()).exp();
    let u = e + 1.0;
    let corrected = u.ln() * (e / (u - 1.0));
    x.max(0.0) + u.eq(1.0).select(e, corrected)
}

/// `1 / (1 + exp(−x))`, without overflow.
fn sigmoid<'k>(x: Value<'k, f32>) -> Value<'k, f32> {
    let e = (-x.abs()).exp();
    let large = 1.0 / (e + 1.0);
    x.ge(0.0).select(large, e * large)
}
