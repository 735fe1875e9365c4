//! Cross-entropy loss, and its gradient with respect to the logits.
//!
//! ```text
//! losses[r]         = ln Σ_c exp(logits[r][c] − max_r) + (max_r − logits[r][target_r])
//! p[r][c]           = exp(logits[r][c] − max_r) ÷ Σ_c exp(logits[r][c] − max_r)
//! grad_logits[r][c] = (p[r][c] − [c = target_r]) ÷ max(counted, 1)
//! ```
//!
//! The target 2³² − 1 is ignored: its loss is 0, and its gradient is p[r][c] · 0, which is 0 unless
//! p is NaN. Any other target outside the vocabulary gives NaN for the loss and the gradient of the
//! row. Neither is used as an index.
//!
//! The gradient is written as f32, bf16 or both, or in place of the logits. If all destinations are
//! null, only losses are computed.
//!
//! **Grid.** `cross_entropy_warp_per_row`: 4 rows per block of 128 threads, for small vocabularies.
//! `cross_entropy_block_per_row`: one block of 1024 threads per row, for large ones. Thread i of a
//! group handles the vec4s i, i + size, … in two passes. The first keeps a running maximum and the
//! sum of exponentials relative to it, and rescales the sum when the maximum grows (Milakov and
//! Gimelshein, arXiv 1805.02867). The second computes the gradient. The thread that owns the
//! target's column writes the loss before it may overwrite the logit.
//!
//! **Determinism.** A thread adds its vec4s in ascending order; a butterfly of fixed shape adds the
//! threads.

use retrograph_kernel_abi::loss::{CROSS_ENTROPY, CrossEntropyParameters, IGNORED_TARGET};
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::{Entry, Module};
use retrograph_ptx::build::{Kernel, ModuleBuilder, Value};

use crate::primitives::parameters::Declarations;
use crate::primitives::thread_group::ThreadGroup;
use crate::primitives::vec4::{Output, Vec4, aligned};

/// Builds the image.
pub(crate) fn module(target: SmTarget) -> Module {
    let entries = ThreadGroup::of_entries(&CROSS_ENTROPY);
    let entries = entries.map(|(name, group)| entry(target, name, group));
    entries.into_iter().fold(ModuleBuilder::new(target), ModuleBuilder::entry).build()
}

fn entry(target: SmTarget, name: &str, group: ThreadGroup) -> Entry {
    Kernel::build(name, |k| {
        k.max_threads(group.block_threads());
        let parameters = CrossEntropyParameters::declare(&mut Declarations(*k));
        let CrossEntropyParameters { logits, targets, losses, grad_logits, .. } = parameters;
        let CrossEntropyParameters { grad_logits_bf16, in_place, counted, .. } = parameters;
        let CrossEntropyParameters { rows, vocab, .. } = parameters;
        let gradient = Output::new(grad_logits, grad_logits_bf16);
        let in_place = in_place.ne(0);

        let row = group.row(k);
        k.return_if(row.ge(rows));
        let start = row.mul_wide(vocab);
        let x = logits.at(start);
        let token = targets.load(row);
        let in_vocab = token.lt(vocab);
        let fallback = token.eq(IGNORED_TARGET).select(0.0, f32::NAN);
        let (thread_rank, size) = (group.thread_rank(k), group.size());
        let vec4 = |first, aligned| Vec4::new(first, vocab, aligned);

        let (max, sum) = (k.var(f32::NEG_INFINITY), k.var(0.0f32));
        let vectorized = aligned(&[x]);
        k.range(thread_rank * 4, vocab, size * 4, |first| {
            let vec4 = vec4(first, vectorized);
            let values = vec4.load_or(x, f32::NEG_INFINITY);
            let [a, b, c, d] = values;
            let before = max.get();
            max.set(before.max(a.max(b).max(c.max(d))));
            let [a, b, c, d] = values.map(|value| relative(value, max.get()));
            sum.update(|sum| sum * relative(before, max.get()) + ((a + b) + (c + d)));
        });
        let thread_max = max.get();
        let max = group.max(k, thread_max);
        let sum = group.sum(k, sum.get() * relative(thread_max, max));

        // Group sizes are powers of two.
        k.when(thread_rank.eq((token >> 2) & (size - 1)), || {
            let loss = k.var(fallback);
            k.when(in_vocab, || loss.set(sum.ln() + (max - x.load(token))));
            losses.store(row, loss);
        });

        let weight = counted.load(0).max(1).cast::<f32>().rcp();
        let weight = in_vocab.select(weight, fallback);
        let scale = sum.rcp();
        let gradient = gradient.or_at(logits, in_place);
        k.return_if(gradient.is_null());
        let gradient = gradient.at(start);
        let [f32, bf16] = gradient.arrays();
        let vectorized = aligned(&[x, f32, bf16]);
        k.range(thread_rank * 4, vocab, size * 4, |first| {
            let vec4 = vec4(first, vectorized);
            let values = vec4.load(x).map(|value| (value - max).exp() * scale);
            let entries = [0, 1, 2, 3].map(|lane| {
                let onehot = (first + lane).eq(token).select(1.0, 0.0);
                (values[lane as usize] - onehot) * weight
            });
            vec4.write(target, gradient, entries);
        });
    })
}

/// `exp(value − max)`, and 0 while every value is −∞.
fn relative<'k>(value: Value<'k, f32>, max: Value<'k, f32>) -> Value<'k, f32> {
    let max = max.eq(f32::NEG_INFINITY).select(0.0, max);
    (value - max).exp()
}
