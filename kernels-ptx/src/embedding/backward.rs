//! Backward pass of the embedding: `grad_table[v] += scale · Σ_{t: tokens[t] = v} grad_out[t]`.
//!
//! Grid: block (t, j) handles the j-th group of columns for position t, four columns per thread.
//! The block of the first position of a token owns its row of the table; all other blocks return.
//! The owner searches the positions from t on and adds the gradients of those with the same token.
//! A warp compares 32 positions at a time. Time depends on the number of positions, not on the
//! vocabulary.
//!
//! Deterministic: only the owner adds to a row, in order of positions.

use retrograph_kernel_abi::embedding::{EMBEDDING_BACKWARD, EmbeddingBackwardParameters};
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::{Kernel, ModuleBuilder, Ptr, Value};

use crate::primitives::parameters::Declarations;
use crate::primitives::registers::{Registers, registers};
use crate::primitives::vec4::{Vec4, aligned};

/// Builds the image.
pub(crate) fn module(target: SmTarget) -> Module {
    ModuleBuilder::new(target).entry(Kernel::build(EMBEDDING_BACKWARD.entry(), backward)).build()
}

/// A search for the positions of a token.
#[derive(Clone, Copy)]
struct Search<'k> {
    tokens: Ptr<'k, u32>,
    token: Value<'k, u32>,
}

fn backward(k: &Kernel<'_>) {
    let EmbeddingBackwardParameters {
        tokens,
        grad_out,
        grad_table,
        positions,
        hidden,
        vocab,
        scale,
    } = EmbeddingBackwardParameters::declare(&mut Declarations(*k));

    let position = k.ctaid_x();
    let token = tokens.load(position);
    k.return_if(token.ge(vocab));
    let search = Search { tokens, token };
    // Every warp computes the same result, so the return is uniform across the block.
    let earlier = k.var(0_u32);
    k.range(0, position, 32, |base| {
        let found = search.matches(k, base, position);
        earlier.update(|earlier| earlier | found);
    });
    k.return_if(earlier.get().ne(0));

    let first = (k.ctaid_y() * k.ntid_x() + k.tid_x()) * 4;
    let sums: Registers<'_> = registers(k, 0.0);
    // Starts at a multiple of 32; none of the positions before this one has the token.
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
    vec4.store(row, [0, 1, 2, 3].map(|i| before[i] + sums[i].get() * scale));
}

impl<'k> Search<'k> {
    /// A bit for each position from `base` to `base + 31` that has the token and is below `end`.
    fn matches(&self, k: &Kernel<'k>, base: Value<'k, u32>, end: Value<'k, u32>) -> Value<'k, u32> {
        let position = base + k.lane();
        let found = k.var(0_u32);
        k.when(position.lt(end), || {
            found.set(self.tokens.load(position).eq(self.token).select(1, 0));
        });
        k.vote_ballot(found.get().ne(0))
    }
}
