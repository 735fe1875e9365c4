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

use crate::quad::{Quad, Written, aligned};
use crate::team::Team;

/// The target of a row that does not count.
const IGNORED: u32 = u32::MAX;

/// The image.
pub(crate) fn module(target: SmTarget) -> Module {
    ModuleBuilder::new(target)
        .entry(entry(target, "cross_entropy_by_warps", Team::Warp { per_block: 4 }))
        .entry(entry(target, "cross_entropy_by_blocks", Team::Block { threads: 1024 }))
        .build()
}

fn entry(target: SmTarget, name: &str, team: Team) -> Entry {
    Kernel::build(name, |k| {
        k.max_threads(team.threads());
        let logits = k.pointer::<f32>("logits");
        let targets = k.pointer::<u32>("targets");
        let losses = k.pointer::<f32>("losses");
        let gradient = Written::declare(k, "grad_logits");
        let in_place = k.param::<u32>("in_place").ne(0);
        let counted = k.pointer::<u32>("counted");
        let rows = k.param::<u32>("rows");
        let vocab = k.param::<u32>("vocab");

        let row = team.row(k);
        k.return_if(row.ge(rows));
        let start = row.mul_wide(vocab);
        let x = logits.at(start);
        let token = targets.load(row);
        let known = token.lt(vocab);
        let otherwise = token.eq(IGNORED).select(0.0, f32::NAN);
        let (member, size) = (team.member(k), team.size());
        let quad = |first, aligned| Quad::new(first, vocab, aligned);

        let (max, sum) = (k.var(f32::NEG_INFINITY), k.var(0.0f32));
        let straight = aligned(&[x]);
        k.range(member * 4, vocab, size * 4, |first| {
            let quad = quad(first, straight);
            let values = quad.load_or(x, f32::NEG_INFINITY);
            let [a, b, c, d] = values;
            let before = max.get();
            max.set(before.max(a.max(b).max(c.max(d))));
            let [a, b, c, d] = values.map(|value| relative(value, max.get()));
            sum.update(|sum| sum * relative(before, max.get()) + ((a + b) + (c + d)));
        });
        let mine = max.get();
        let max = team.max(k, mine);
        let sum = team.sum(k, sum.get() * relative(mine, max));

        // Teams are powers of two.
        k.when(member.eq((token >> 2) & (size - 1)), || {
            let loss = k.var(otherwise);
            k.when(known, || loss.set(sum.ln() + (max - x.load(token))));
            losses.store(row, loss);
        });

        let share = counted.load(0).max(1).cast::<f32>().rcp();
        let share = known.select(share, otherwise);
        let scale = sum.rcp();
        let gradient = gradient.or_at(logits, in_place);
        k.return_if(gradient.is_null());
        let gradient = gradient.at(start);
        let [f32, bf16] = gradient.arrays();
        let straight = aligned(&[x, f32, bf16]);
        k.range(member * 4, vocab, size * 4, |first| {
            let quad = quad(first, straight);
            let values = quad.load(x).map(|value| (value - max).exp() * scale);
            let entries = [0, 1, 2, 3].map(|lane| {
                let onehot = (first + lane).eq(token).select(1.0, 0.0);
                (values[lane as usize] - onehot) * share
            });
            quad.write(target, gradient, entries);
        });
    })
}

/// `exp(value − max)`, and 0 while everything is −∞.
fn relative<'k>(value: Value<'k, f32>, max: Value<'k, f32>) -> Value<'k, f32> {
    let max = max.eq(f32::NEG_INFINITY).select(0.0, max);
    (value - max).exp()
}
