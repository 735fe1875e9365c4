//! The sum of parts: `out[i] = Σ_p partials[p, i]`, the end of a product whose contraction was cut.
//!
//! Grid: one thread for each four neighbouring elements of the result, which is written as f32, as
//! bf16, or both.
//! Deterministic: each element is added by one thread, part after part in ascending order.

use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::{Kernel, ModuleBuilder};

use crate::primitives::vec4::{Output, Vec4, aligned};

/// The image for `target`.
pub(crate) fn module(target: SmTarget) -> Module {
    ModuleBuilder::new(target).entry(Kernel::build("parts_sum", |k| parts_sum(k, target))).build()
}

fn parts_sum(k: &Kernel<'_>, target: SmTarget) {
    let partials = k.pointer::<f32>("partials");
    let out = Output::declare(k, "out");
    let parts = k.param::<u32>("parts");
    let n = k.param::<u32>("n");
    let vec4 = k.ctaid_x() * k.ntid_x() + k.tid_x();
    // Quads are counted, not elements, since four times the last thread may pass 2³².
    k.return_if(vec4.ge((n >> 2) + (n & 3).min(1)));
    // Later parts are aligned as the first one where their length is a whole number of quads.
    let [plain, rounded] = out.arrays();
    let whole = aligned(&[partials, plain, rounded]) & (n & 3).eq(0);
    let vec4 = Vec4::new(vec4 * 4, n, whole);
    let sums = vec4.load(partials).map(|first| k.var(first));
    k.range(1, parts, 1, |part| {
        let more = vec4.load(partials.at(part.mul_wide(n)));
        sums.iter().zip(more).for_each(|(sum, value)| sum.add_assign(value));
    });
    vec4.write(target, out, sums.map(|sum| sum.get()));
}
