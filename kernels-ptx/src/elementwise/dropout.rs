//! Dropout: zeroes random elements and scales the others.
//!
//! ```text
//! out[i] (+)= x[i] · scale   if word_i ≥ threshold, else 0
//! word_i    = word i mod 4 of Philox(counter = (group, *step, sequence, 1), key = seed)
//! group     = first_group + i ÷ 4
//! ```
//!
//! The mask is a function of seed, step, sequence and index in the sequence. The backward pass
//! recomputes it instead of storing it, and each graph replay draws a new one because the step is
//! read from memory.
//!
//! **Grid.** One thread per vec4, which uses one Philox draw of four words.
//!
//! **Determinism.** One thread computes each element from the same index of x, so `out` may alias
//! x.

use retrograph_kernel_abi::elementwise::{DROPOUT, DropoutParameters};
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::{Entry, Module};
use retrograph_ptx::build::{Kernel, ModuleBuilder};

use crate::primitives::parameters::Declarations;
use crate::primitives::philox::{DROPOUT_DOMAIN, philox};
use crate::primitives::vec4::{Vec4, aligned};

/// Builds the image.
pub(crate) fn module(target: SmTarget) -> Module {
    ModuleBuilder::new(target).entry(entry()).build()
}

fn entry() -> Entry {
    Kernel::build(DROPOUT.entry(), |k| {
        let parameters = DropoutParameters::declare(&mut Declarations(*k));
        let DropoutParameters { x, out, step, n, threshold, scale, sequence, .. } = parameters;
        let DropoutParameters { first_group, seed_low, seed_high, accumulate, .. } = parameters;

        let index = k.ctaid_x() * k.ntid_x() + k.tid_x();
        // Compares vec4 counts: four times the last thread may exceed 2³².
        k.return_if(index.ge((n >> 2) + (n & 3).min(1)));
        let vec4 = Vec4::new(index * 4, n, aligned(&[x, out]));
        let counter = [first_group + index, step.load(0), sequence, k.constant(DROPOUT_DOMAIN)];
        let words = philox(counter, [seed_low, seed_high]);
        let values = vec4.load(x);
        let kept = [0, 1, 2, 3].map(|i| {
            let value: retrograph_ptx::build::Value<'_, f32> = values[i] * scale;
            k.var(words[i].ge(threshold).select(value, 0.0))
        });
        k.when(accumulate.ne(0), || {
            let before = vec4.load(out);
            kept.iter().zip(before).for_each(|(kept, before)| kept.add_assign(before));
        });
        vec4.store(out, kept.map(|kept| kept.get()));
    })
}
