//! Backward pass of the embedding: `grad_table[v] += Σ_{t: tokens[t] = v} grad_out[t]`.
//!
//! Grid: block (t, j) has the j-th run of columns of position t, four for each thread. It goes on
//! only if no earlier position has the same token, so that each row of the table has one owner; it
//! then looks for the token in the positions from t on, in order, and adds their gradients. A warp
//! compares 32 positions at a time. The cost is that of the positions, whatever the vocabulary.
//!
//! Deterministic: the sum of a row is taken in the order of positions by its owner alone.

use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::{Kernel, ModuleBuilder, Ptr, Value};

use crate::primitives::vec4::{Vec4, aligned};

/// The image for `target`.
pub(crate) fn module(target: SmTarget) -> Module {
    ModuleBuilder::new(target).entry(Kernel::build("embedding_backward", backward)).build()
}

/// The positions and the token that a block looks for.
#[derive(Clone, Copy)]
struct Search<'k> {
    tokens: Ptr<'k, u32>,
    token: Value<'k, u32>,
}

fn backward(k: &Kernel<'_>) {
    let tokens = k.pointer::<u32>("tokens");
    let grad_out = k.pointer::<f32>("source");
    let grad_table = k.pointer::<f32>("target");
    let positions = k.param::<u32>("positions");
    let hidden = k.param::<u32>("hidden");
    let vocab = k.param::<u32>("vocab");

    let position = k.ctaid_x();
    let token = tokens.load(position);
    k.return_if(token.ge(vocab));
    let search = Search { tokens, token };
    // Every warp comes to the same answer, so that all of the block goes on or none of it.
    let earlier = k.var(0_u32);
    k.range(0, position, 32, |base| {
        let found = search.matches(k, base, position);
        earlier.update(|earlier| earlier | found);
    });
    k.return_if(earlier.get().ne(0));

    let first = (k.ctaid_y() * k.ntid_x() + k.tid_x()) * 4;
    let sums = [(); 4].map(|()| k.var(0.0));
    // The positions before this one that share its 32 do not have the token, as was just seen.
    k.range(position & !31, positions, 32, |base| {
        let found = search.matches(k, base, positions);
        k.when(found.ne(0), || {
            k.range(0, 32, 1, |bit| {
                k.when(((found >> bit) & 1).ne(0), || {
                    let row = grad_out.at((base + bit).mul_wide(hidden));
                    let vec4 = Vec4::new(first, hidden, aligned(&[row]));
                    sums.iter().zip(vec4.load(row)).for_each(|(sum, value)| sum.add_assign(value));
                });
            });
        });
    });
    let row = grad_table.at(token.mul_wide(hidden));
    let vec4 = Vec4::new(first, hidden, aligned(&[row]));
    let before = vec4.load(row);
    vec4.store(row, [0, 1, 2, 3].map(|i| before[i] + sums[i].get()));
}

impl<'k> Search<'k> {
    /// A bit for each of the 32 positions from `base` that has the token, among those before `end`.
    fn matches(&self, k: &Kernel<'k>, base: Value<'k, u32>, end: Value<'k, u32>) -> Value<'k, u32> {
        let position = base + k.lane();
        let found = k.var(0_u32);
        k.when(position.lt(end), || {
            found.set(self.tokens.load(position).eq(self.token).select(1, 0));
        });
        k.ballot(found.get().ne(0))
    }
}
