//! Marks the tokens of a prompt as seen, for the repetition penalty: `seen[tokens[i]] = 1` for i <
//! count. Skips tokens outside the vocabulary.
//!
//! **Grid.** One thread per token; blocks of 128 threads in x.
//!
//! **Determinism.** Threads that write the same element write the same value.

use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::{Entry, Module};
use retrograph_ptx::build::{Kernel, ModuleBuilder};

/// Builds the image.
pub(crate) fn module(target: SmTarget) -> Module {
    ModuleBuilder::new(target).entry(entry()).build()
}

fn entry() -> Entry {
    Kernel::build("mark_seen_tokens", |k| {
        k.max_threads(128);
        let tokens = k.pointer::<u32>("tokens");
        let seen = k.pointer::<u32>("seen");
        let count = k.pointer::<u32>("count");
        let n = k.param::<u32>("n");
        let vocab = k.param::<u32>("vocab");

        let i = k.ctaid_x() * k.ntid_x() + k.tid_x();
        // Without a count, marks all n tokens.
        let kept = k.var(n);
        k.when(!count.is_null(), || kept.set(count.load(0).min(n)));
        k.return_if(i.ge(kept.get()));
        let token = tokens.load(i);
        k.return_if(token.ge(vocab));
        // Atomic, because concurrent plain stores to one address are a data race.
        seen.atom_exch(token, k.constant(1));
    })
}
