//! Softmax over rows, causal or not.
//!
//! ```text
//! output[r][c] = exp(input[r][c] − max_r) ÷ Σ_c exp(input[r][c] − max_r)      c not masked
//! output[r][c] = 0                                                            c masked
//! ```
//!
//! The causal mask keeps the columns c ≤ start + r mod queries. The first of `queries` consecutive
//! rows has position `*start`, or 0 if the pointer is null.
//!
//! **Grid.** `softmax_warp_per_row`: 4 rows per block of 128 threads, for narrow rows.
//! `softmax_block_per_row`: one block of 256 threads per row, for wide ones. Thread i of a group
//! handles the columns i, i + size, … in three passes: maximum, sum, output.
//!
//! **Determinism.** A thread adds its columns in ascending order, and a butterfly of fixed shape
//! adds the threads. The output may alias the input: in the third pass a thread reads and writes
//! only its own columns, and all other passes are complete.

use retrograph_kernel_abi::attention::{SOFTMAX, SoftmaxParameters};
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::{Entry, Module};
use retrograph_ptx::build::{Kernel, ModuleBuilder};

use crate::primitives::parameters::Declarations;
use crate::primitives::thread_group::ThreadGroup;

/// Builds the image.
pub(crate) fn module(target: SmTarget) -> Module {
    let entries = ThreadGroup::of_entries(&SOFTMAX);
    let entries = entries.map(|(name, group)| entry(name, group));
    entries.into_iter().fold(ModuleBuilder::new(target), ModuleBuilder::entry).build()
}

fn entry(name: &str, group: ThreadGroup) -> Entry {
    Kernel::build(name, |k| {
        k.max_threads(group.block_threads());
        let SoftmaxParameters { input, output, start, rows, width, queries, causal } =
            SoftmaxParameters::declare(&mut Declarations(*k));

        let row = group.row(k);
        k.return_if(row.ge(rows));
        let past = k.var(0u32);
        k.when(!start.is_null(), || past.set(start.load(0)));
        let seen = past.get() + row % queries + 1;
        let kept = causal.ne(0).select(seen.min(width), width);
        let first = row.mul_wide(width);
        let (x, y) = (input.at(first), output.at(first));
        let (thread_rank, size) = (group.thread_rank(k), group.size());

        let max = k.var(f32::NEG_INFINITY);
        k.range(thread_rank, kept, size, |i| max.update(|max| max.max(x.load(i))));
        let max = group.max(k, max.get());

        let sum = k.var(0.0f32);
        k.range(thread_rank, kept, size, |i| sum.add_assign((x.load(i) - max).exp()));
        let scale = group.sum(k, sum.get()).rcp();

        k.range(thread_rank, kept, size, |i| y.store(i, (x.load(i) - max).exp() * scale));
        k.range(kept + thread_rank, width, size, |i| y.store(i, 0.0));
    })
}
