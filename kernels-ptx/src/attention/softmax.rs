//! Softmax over rows, causal or not.
//!
//! ```text
//! output[r][c] = exp(input[r][c] − max_r) ÷ Σ_c exp(input[r][c] − max_r)      c not masked
//! output[r][c] = 0                                                            c masked
//! ```
//!
//! The causal mask keeps the columns c ≤ start + r mod queries. The first of `queries` consecutive
//! rows has position `*start`, or 0 if the pointer is null. Of these columns, a row keeps the last
//! `window`, or the columns from its entry in `first_columns` on.
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
        let parameters = SoftmaxParameters::declare(&mut Declarations(*k));
        let SoftmaxParameters { input, output, start, rows, width, queries, .. } = parameters;
        let SoftmaxParameters { first_columns, rows_per_sequence, window, causal, .. } = parameters;

        let row = group.row(k);
        k.return_if(row.ge(rows));
        let past = k.var(0u32);
        k.when(!start.is_null(), || past.set(start.load(0)));
        let seen = past.get() + row % queries + 1;
        let end = causal.ne(0).select(seen.min(width), width);
        let first = k.var(causal.ne(0).select(seen - seen.min(window), 0));
        k.when(!first_columns.is_null(), || {
            let query = row / rows_per_sequence * queries + row % queries;
            first.set(first_columns.load(query));
        });
        let first = first.get().min(end);
        let start = row.mul_wide(width);
        let (x, y) = (input.at(start), output.at(start));
        let (thread_rank, size) = (group.thread_rank(k), group.size());

        let max = k.var(f32::NEG_INFINITY);
        k.range(first + thread_rank, end, size, |i| max.update(|max| max.max(x.load(i))));
        let max = group.max(k, max.get());

        let sum = k.var(0.0f32);
        k.range(first + thread_rank, end, size, |i| sum.add_assign((x.load(i) - max).exp()));
        let scale = group.sum(k, sum.get()).rcp();

        k.range(first + thread_rank, end, size, |i| {
            y.store(i, (x.load(i) - max).exp() * scale);
        });
        k.range(thread_rank, first, size, |i| y.store(i, 0.0));
        k.range(end + thread_rank, width, size, |i| y.store(i, 0.0));
    })
}
