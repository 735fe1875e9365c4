//! Dropout: elements are left out at random, and the others scaled up.
//!
//! ```text
//! out[i] (+)= x[i] · scale   where word_i ≥ threshold, else 0
//! word_i    = word i mod 4 of Philox(counter = (i ÷ 4, *step, stream, 1), key = seed)
//! ```
//!
//! The random words are a function of seed, step, stream and place alone, so that the backward pass
//! leaves out the same elements without having kept which, and a replay draws anew at each step.
//!
//! **Grid.** One thread for each four neighbouring elements, which share one draw of four words.
//!
//! **Determinism.** Every element is computed by one thread from its own place, so that `out` may
//! be x.

use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::{Entry, Module};
use retrograph_ptx::build::{Kernel, ModuleBuilder};

use crate::primitives::philox::philox;
use crate::primitives::vec4::{Vec4, aligned};

/// The last word of the counter, which no other kernel has.
const DOMAIN: u32 = 1;

/// The image.
pub(crate) fn module(target: SmTarget) -> Module {
    ModuleBuilder::new(target).entry(entry()).build()
}

fn entry() -> Entry {
    Kernel::build("dropout", |k| {
        let x = k.pointer::<f32>("x");
        let out = k.pointer::<f32>("out");
        let step = k.pointer::<u32>("step");
        let n = k.param::<u32>("n");
        let threshold = k.param::<u32>("threshold");
        let scale = k.param::<f32>("scale");
        let stream = k.param::<u32>("stream");
        let seed = ["seed_low", "seed_high"].map(|name| k.param::<u32>(name));
        let accumulate = k.param::<u32>("accumulate");

        let index = k.ctaid_x() * k.ntid_x() + k.tid_x();
        // Quads are counted, not elements, since four times the last thread may pass 2³².
        k.return_if(index.ge((n >> 2) + (n & 3).min(1)));
        let vec4 = Vec4::new(index * 4, n, aligned(&[x, out]));
        let words = philox([index, step.load(0), stream, k.constant(DOMAIN)], seed);
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
