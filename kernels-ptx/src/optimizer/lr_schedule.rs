//! Learning-rate schedule and AdamW bias corrections: linear warm-up, constant peak, then cosine or
//! linear decay. With s the step, counted from 0, and t = s + 1:
//!
//! ```text
//! lr = peak_lr · (s + 1) / warmup_steps                            for s < warmup_steps
//! lr = peak_lr                                                     for s < decay_start
//! lr = min_lr                                                      for s ≥ total_steps
//! lr = min_lr + (peak_lr − min_lr) · f                             between, with
//!      p = (s − decay_start) / (total_steps − decay_start)
//!      f = (1 + cos(π·p)) / 2, or 1 − p if the decay is linear
//! scalars = [lr, lr / (1 − β1^t), 1 / sqrt(1 − β2^t)]
//! ```
//! The cosine is computed as `(1 + cos(π·p)) / 2 = sin²(π/2 · (1 − p))`, which has no cancellation
//! at the end, by a Taylor polynomial of degree 23 with an error below 1e-18 on [0, π/2]. Powers
//! use repeated squaring. All arithmetic is f64, rounded once.
//!
//! Grid: one thread of one warp. Deterministic: a single thread computes everything.

use retrograph_kernel_abi::optimizer::{LR_SCHEDULE, LrScheduleParameters, scalar};
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::{Kernel, ModuleBuilder, Value};

use crate::primitives::parameters::Declarations;

/// Builds the image.
pub(crate) fn module(target: SmTarget) -> Module {
    ModuleBuilder::new(target).entry(Kernel::build(LR_SCHEDULE.entry(), lr_schedule)).build()
}

fn lr_schedule(k: &Kernel<'_>) {
    let parameters = LrScheduleParameters::declare(&mut Declarations(*k));
    let LrScheduleParameters { step, scalars, warmup_steps, decay_start, .. } = parameters;
    let LrScheduleParameters { total_steps, linear, peak_lr, min_lr, .. } = parameters;
    let LrScheduleParameters { beta1, beta2, .. } = parameters;
    k.return_if(k.tid_x().ne(0));

    let step = step.load(0);
    let t = step.cast::<u64>() + 1;
    let lr = k.var(min_lr);
    let warm_up = || lr.set(peak_lr * t.cast::<f64>() / warmup_steps.cast::<f64>());
    let decay = || {
        let remaining =
            (total_steps - step).cast::<f64>() / (total_steps - decay_start).cast::<f64>();
        let factor = k.var(remaining);
        k.when(linear.eq(0), || {
            let sine = sin_half_pi(remaining);
            factor.set(sine * sine);
        });
        lr.set((peak_lr - min_lr).fma(factor.get(), min_lr));
    };
    let after = || {
        let peak = || lr.set(peak_lr);
        k.when_else(step.lt(decay_start), peak, || k.when(step.lt(total_steps), decay));
    };
    k.when_else(step.lt(warmup_steps), warm_up, after);

    let lr = lr.get();
    let first = 1.0 - power(beta1, t);
    let second = 1.0 - power(beta2, t);
    scalars.store(scalar::LR, lr.cast::<f32>());
    scalars.store(scalar::STEP_SIZE, (lr / first).cast::<f32>());
    scalars.store(scalar::ROOT_SCALE, (1.0 / second.sqrt()).cast::<f32>());
}

/// `sin(π/2 · x)` for x from 0 to 1.
fn sin_half_pi<'k>(x: Value<'k, f64>) -> Value<'k, f64> {
    let z = x * std::f64::consts::FRAC_PI_2;
    let square = z * z;
    // 1 − z²/6 · (1 − z²/20 · (1 − z²/42 · …)), evaluated from the innermost term.
    let one = x.kernel().constant(1.0);
    let series = (1..=11).rev().fold(one, |inner, n| {
        let factor = f64::from(2 * n * (2 * n + 1));
        (square * (-1.0 / factor)).fma(inner, 1.0)
    });
    z * series
}

/// `base` to an integer power, by repeated squaring.
fn power<'k>(base: Value<'k, f64>, exponent: Value<'k, u64>) -> Value<'k, f64> {
    let k = base.kernel();
    let (result, square, bits) = (k.var(1.0), k.var(base), k.var(exponent));
    let more = || bits.get().ne(0);
    k.while_loop(more, || {
        k.when((bits.get() & 1).ne(0), || result.mul_assign(square.get()));
        square.update(|square| square * square);
        bits.update(|bits| bits >> 1);
    });
    result.get()
}
