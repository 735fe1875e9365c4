//! Second stage of split-K: `out[i] = Σ_p partials[p, i]`.
//!
//! Grid: one thread per vec4 of the result, which is written as f32, bf16 or both.
//! Deterministic: one thread computes each element, adding the splits in ascending order.

use retrograph_kernel_abi::gemm::{SPLIT_K_SUM, SplitKSumParameters};
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::{Kernel, ModuleBuilder};

use crate::primitives::output::Output;
use crate::primitives::parameters::Declarations;
use crate::primitives::vec4::{Vec4, aligned};

/// Builds the image.
pub(crate) fn module(target: SmTarget) -> Module {
    ModuleBuilder::new(target)
        .entry(Kernel::build(SPLIT_K_SUM.entries[0], |k| split_k_sum(k, target)))
        .build()
}

fn split_k_sum(k: &Kernel<'_>, target: SmTarget) {
    let SplitKSumParameters { partials, out, out_bf16, splits, n } =
        SplitKSumParameters::declare(&mut Declarations(*k));
    let out = Output::new(out, out_bf16);
    let vec4 = k.ctaid_x() * k.ntid_x() + k.tid_x();
    // Compares vec4 counts: four times the last thread may exceed 2³².
    k.return_if(vec4.ge((n >> 2) + (n & 3).min(1)));
    // All splits are aligned like the first if their length is a multiple of 4.
    let [plain, rounded] = out.arrays();
    let aligned_splits = aligned(&[partials, plain, rounded]) & (n & 3).eq(0);
    let vec4 = Vec4::new(vec4 * 4, n, aligned_splits);
    let sums = vec4.load(partials).map(|first| k.var(first));
    k.range(1, splits, 1, |split| {
        let more = vec4.load(partials.at(split.mul_wide(n)));
        sums.iter().zip(more).for_each(|(sum, value)| sum.add_assign(value));
    });
    vec4.write(target, out, sums.map(|sum| sum.get()));
}
