//! Backward pass of softmax over rows, causal or not.
//!
//! ```text
//! grad_input[r][c] = probs[r][c] · (grad_out[r][c] − Σ_c probs[r][c] · grad_out[r][c])
//! ```
//!
//! The mask covers the columns c > r mod width and the columns before the row's entry in
//! `first_columns`: their gradient is 0, and their inputs are not read.
//!
//! **Grid.** `softmax_backward_warp_per_row`: 4 rows per block of 128 threads, for narrow rows.
//! `softmax_backward_block_per_row`: one block of 256 threads per row, for wide ones. Thread i of a
//! group handles the columns i, i + size, … in two passes: dot product, gradient.
//!
//! **Determinism.** A thread adds its columns in ascending order by fused multiply-adds, and a
//! butterfly of fixed shape adds the threads.

use retrograph_kernel_abi::attention::{SOFTMAX_BACKWARD, SoftmaxBackwardParameters};
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::{Entry, Module};
use retrograph_ptx::build::{Kernel, ModuleBuilder};

use crate::primitives::parameters::Declarations;
use crate::primitives::thread_group::ThreadGroup;

/// Builds the image.
pub(crate) fn module(target: SmTarget) -> Module {
    let entries = ThreadGroup::of_entries(&SOFTMAX_BACKWARD);
    let entries = entries.map(|(name, group)| entry(name, group));
    entries.into_iter().fold(ModuleBuilder::new(target), ModuleBuilder::entry).build()
}

fn entry(name: &str, group: ThreadGroup) -> Entry {
    Kernel::build(name, |k| {
        k.max_threads(group.block_threads());
        let parameters = SoftmaxBackwardParameters::declare(&mut Declarations(*k));
        let SoftmaxBackwardParameters { probs, grad_out, grad_input, rows, width, .. } = parameters;
        let SoftmaxBackwardParameters { first_columns, rows_per_sequence, causal, .. } = parameters;

        let row = group.row(k);
        k.return_if(row.ge(rows));
        let end = causal.ne(0).select(row % width + 1, width);
        let first = k.var(0u32);
        k.when(!first_columns.is_null(), || {
            first.set(first_columns.load(row / rows_per_sequence * width + row % width));
        });
        let first = first.get().min(end);
        let start = row.mul_wide(width);
        let (p, dy, dx) = (probs.at(start), grad_out.at(start), grad_input.at(start));
        let (thread_rank, size) = (group.thread_rank(k), group.size());

        let dot = k.var(0.0f32);
        k.range(first + thread_rank, end, size, |i| {
            dot.update(|dot| p.load(i).fma(dy.load(i), dot));
        });
        let dot = group.sum(k, dot.get());

        k.range(first + thread_rank, end, size, |i| dx.store(i, p.load(i) * (dy.load(i) - dot)));
        k.range(thread_rank, first, size, |i| dx.store(i, 0.0));
        k.range(end + thread_rank, width, size, |i| dx.store(i, 0.0));
    })
}
