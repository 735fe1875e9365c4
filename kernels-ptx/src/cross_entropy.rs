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
//! **Grid.** `cross_entropy_by_warps`: one warp per row, 4 rows per block of 128 threads, for small
//! vocabularies. `cross_entropy_by_blocks`: one block of 1024 threads per row, for large ones.
//! Member i of the team takes the columns i, i + team, … in three passes: maximum, sum, gradient.
//! The member to whom the target's column belongs writes the loss, before it overwrites the logit.
//!
//! **Determinism.** A member adds its columns in ascending order, and a butterfly of fixed shape
//! adds the members.

use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::{Entry, Module};
use retrograph_ptx::build::{Kernel, ModuleBuilder};

use crate::team::Team;

/// The target of a row that does not count.
const IGNORED: u32 = u32::MAX;

/// The image.
pub(crate) fn module(target: SmTarget) -> Module {
    ModuleBuilder::new(target)
        .entry(entry("cross_entropy_by_warps", Team::Warp { per_block: 4 }))
        .entry(entry("cross_entropy_by_blocks", Team::Block { threads: 1024 }))
        .build()
}

fn entry(name: &str, team: Team) -> Entry {
    Kernel::build(name, |k| {
        k.max_threads(team.threads());
        let logits = k.pointer::<f32>("logits");
        let targets = k.pointer::<u32>("targets");
        let losses = k.pointer::<f32>("losses");
        let counted = k.pointer::<u32>("counted");
        let rows = k.param::<u32>("rows");
        let vocab = k.param::<u32>("vocab");

        let row = team.row(k);
        k.return_if(row.ge(rows));
        let x = logits.at(row.mul_wide(vocab));
        let target = targets.load(row);
        let known = target.lt(vocab);
        let otherwise = target.eq(IGNORED).select(0.0, f32::NAN);
        let (member, size) = (team.member(k), team.size());

        let max = k.var(f32::NEG_INFINITY);
        k.range(member, vocab, size, |i| max.update(|max| max.max(x.load(i))));
        let max = team.max(k, max.get());

        let sum = k.var(0.0f32);
        k.range(member, vocab, size, |i| sum.add_assign((x.load(i) - max).exp()));
        let sum = team.sum(k, sum.get());

        // Teams are powers of two.
        k.when(member.eq(target & (size - 1)), || {
            let loss = k.var(otherwise);
            k.when(known, || loss.set(sum.ln() + (max - x.load(target))));
            losses.store(row, loss);
        });

        let scale = sum.rcp();
        let share = counted.load(0).max(1).cast::<f32>().rcp();
        let share = known.select(share, otherwise);
        k.range(member, vocab, size, |i| {
            let onehot = i.eq(target).select(1.0, 0.0);
            let probability = (x.load(i) - max).exp() * scale;
            x.store(i, (probability - onehot) * share);
        });
    })
}
