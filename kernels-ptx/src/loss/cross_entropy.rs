//! Cross-entropy loss and its gradient in place.
//!
//! ```text
//! losses[r]    = ln Σ_c exp(logits[r][c] − max_r) + (max_r − logits[r][target_r])
//! p[r][c]      = exp(logits[r][c] − max_r) ÷ Σ_c exp(logits[r][c] − max_r)
//! logits[r][c] = (p[r][c] − [c = target_r]) ÷ max(counted, 1)
//! ```
//!
//! For the target 2³² − 1, which is ignored, the loss is 0 and the row p[r][c] · 0: zero, and NaN
//! where the probabilities are. Any other target past the vocabulary makes the loss and the row
//! NaN. Neither is ever used as an index.
//!
//! Without a place for the gradient only the losses are computed. The gradient goes to f32, to
//! bf16, or both, or in place of the logits.
//!
//! **Grid.** `cross_entropy_by_warps`: one warp per row, 4 rows per block of 128 threads, for small
//! vocabularies. `cross_entropy_by_blocks`: one block of 1024 threads per row, for large ones.
//! Member i of the team takes the quads i, i + team, … of columns in two passes. In the first it
//! keeps the greatest logit so far, and the sum of exponentials relative to it, which it scales
//! down when a greater one appears (Milakov and Gimelshein, arXiv 1805.02867); the second one
//! computes the gradient. The member to whom the target's column belongs writes the loss, before
//! it may overwrite the logit.
//!
//! **Determinism.** A member adds its quads in ascending order, and a butterfly of fixed shape
//! adds the members.
//!
//! The floor is to read the logits once: a row of a large vocabulary is longer than what can be
//! kept, so that they are read twice.

use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::{Entry, Module};
use retrograph_ptx::build::{Kernel, ModuleBuilder, Value};

use crate::primitives::thread_group::ThreadGroup;
use crate::primitives::vec4::{Output, Vec4, aligned};

/// The target of a row that does not count.
const IGNORED: u32 = u32::MAX;

/// The image.
pub(crate) fn module(target: SmTarget) -> Module {
    ModuleBuilder::new(target)
        .entry(entry(target, "cross_entropy_by_warps", ThreadGroup::Warp { per_block: 4 }))
        .entry(entry(target, "cross_entropy_by_blocks", ThreadGroup::Block { threads: 1024 }))
        .build()
}

fn entry(target: SmTarget, name: &str, group: ThreadGroup) -> Entry {
    Kernel::build(name, |k| {
        k.max_threads(group.block_threads());
        let logits = k.pointer::<f32>("logits");
        let targets = k.pointer::<u32>("targets");
        let losses = k.pointer::<f32>("losses");
        let gradient = Output::declare(k, "grad_logits");
        let in_place = k.param::<u32>("in_place").ne(0);
        let counted = k.pointer::<u32>("counted");
        let rows = k.param::<u32>("rows");
        let vocab = k.param::<u32>("vocab");

        let row = group.row(k);
        k.return_if(row.ge(rows));
        let start = row.mul_wide(vocab);
        let x = logits.at(start);
        let token = targets.load(row);
        let known = token.lt(vocab);
        let fallback = token.eq(IGNORED).select(0.0, f32::NAN);
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
        let mine = max.get();
        let max = group.max(k, mine);
        let sum = group.sum(k, sum.get() * relative(mine, max));

        // Teams are powers of two.
        k.when(thread_rank.eq((token >> 2) & (size - 1)), || {
            let loss = k.var(fallback);
            k.when(known, || loss.set(sum.ln() + (max - x.load(token))));
            losses.store(row, loss);
        });

        let share = counted.load(0).max(1).cast::<f32>().rcp();
        let share = known.select(share, fallback);
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
                (values[lane as usize] - onehot) * share
            });
            vec4.write(target, gradient, entries);
        });
    })
}

/// `exp(value − max)`, and 0 while everything is −∞.
fn relative<'k>(value: Value<'k, f32>, max: Value<'k, f32>) -> Value<'k, f32> {
    let max = max.eq(f32::NEG_INFINITY).select(0.0, max);
    (value - max).exp()
}
