//! Marks tokens as seen, for the repetition penalty: `seen[i · row_stride + tokens[i]] = 1` for i <
//! count. The tokens of a prompt share a row; the tokens of several sequences have one row each.
//! Skips tokens outside the vocabulary.
//!
//! **Grid.** One thread per token; blocks of 128 threads in x.
//!
//! **Determinism.** Threads that write the same element write the same value.

use retrograph_kernel_abi::sampling::{MARK_SEEN_TOKENS, MarkSeenTokensParameters, THREADS};
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::{Entry, Module};
use retrograph_ptx::build::{Kernel, ModuleBuilder};

use crate::primitives::parameters::Declarations;

/// Builds the image.
pub(crate) fn module(target: SmTarget) -> Module {
    ModuleBuilder::new(target).entry(entry()).build()
}

fn entry() -> Entry {
    Kernel::build(MARK_SEEN_TOKENS.entry(), |k| {
        k.max_threads(THREADS);
        let MarkSeenTokensParameters { tokens, seen, count, n, vocab, row_stride } =
            MarkSeenTokensParameters::declare(&mut Declarations(*k));

        let i = k.ctaid_x() * k.ntid_x() + k.tid_x();
        // Without a count, marks all n tokens.
        let kept = k.var(n);
        k.when(!count.is_null(), || kept.set(count.load(0).min(n)));
        k.return_if(i.ge(kept.get()));
        let token = tokens.load(i);
        k.return_if(token.ge(vocab));
        // Atomic, because concurrent plain stores to one address are a data race.
        seen.at(i.mul_wide(row_stride)).atom_exch(token, k.constant(1));
    })
}
