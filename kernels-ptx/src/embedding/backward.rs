//! Backward pass of the embedding: `grad_table[v] += scale · Σ_{t: tokens[t] = v} grad_out[t]`.
//!
//! Grid: block (t, j) handles the j-th group of columns for position t, four columns per thread.
//! The block of the first position of a token owns its row of the table; all other blocks return.
//! The owner lists the positions with its token in shared memory, and adds their gradients. Several
//! row loads are in flight together, because one token can fill every tenth position of a text.
//! Time depends on the number of positions, not on the vocabulary.
//!
//! Deterministic: only the owner adds to a row, in order of positions.

use retrograph_kernel_abi::embedding::{EMBEDDING_BACKWARD, EmbeddingBackwardParameters};
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::{Kernel, ModuleBuilder, Ptr, Shared, Value};

use crate::primitives::parameters::Declarations;
use crate::primitives::registers::{Registers, registers};
use crate::primitives::vec4::{Vec4, aligned};

/// Builds the image.
pub(crate) fn module(target: SmTarget) -> Module {
    ModuleBuilder::new(target).entry(Kernel::build(EMBEDDING_BACKWARD.entry(), backward)).build()
}

/// Positions that are listed at a time: a bitmask word for each lane of a warp.
const LISTED: u32 = 32 * 32;
/// Rows whose loads are in flight together.
const IN_FLIGHT: u32 = 8;

/// The positions of a token.
#[derive(Clone, Copy)]
struct Positions<'k> {
    tokens: Ptr<'k, u32>,
    token: Value<'k, u32>,
    /// The bitmask of the listed positions.
    found: Shared<'k, u32>,
    list: Shared<'k, u32>,
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
    let (found, list) = (k.shared("found", 32), k.shared("list", LISTED as usize));
    let of_token = Positions { tokens, token, found, list };
    k.return_if(of_token.count_before(k, position).ne(0));

    let first = (k.ctaid_y() * k.ntid_x() + k.tid_x()) * 4;
    let sums: Registers<'_> = registers(k, 0.0);
    // None of the positions before this one has the token.
    k.range(position & !(LISTED - 1), positions, LISTED, |base| {
        let count = of_token.list(k, base, positions);
        k.range(0, count, IN_FLIGHT, |start| {
            let rows: Vec<_> = (0..IN_FLIGHT)
                .map(|at| {
                    let listed = list.load((start + at).min(count - 1));
                    let row = grad_out.at(listed.mul_wide(hidden));
                    Vec4::new(first, hidden, aligned(&[row])).load(row)
                })
                .collect();
            for (at, row) in (0..).zip(rows) {
                let is_listed = (start + at).lt(count);
                for (sum, value) in sums.iter().zip(row) {
                    sum.add_assign(is_listed.select(value, 0.0));
                }
            }
        });
        // The list is read.
        k.barrier();
    });
    let row = grad_table.at(token.mul_wide(hidden));
    let vec4 = Vec4::new(first, hidden, aligned(&[row]));
    let before = vec4.load(row);
    vec4.store(row, [0, 1, 2, 3].map(|i| before[i] + sums[i].get() * scale));
}

impl<'k> Positions<'k> {
    /// The number of positions before `end`, the same in every thread.
    fn count_before(&self, k: &Kernel<'k>, end: Value<'k, u32>) -> Value<'k, u32> {
        let count = k.var(0_u32);
        k.range(k.tid_x(), end, k.ntid_x(), |position| {
            count.add_assign(self.tokens.load(position).eq(self.token).select(1, 0));
        });
        k.block_sum(count.get())
    }

    /// Lists the positions from `base` on, [`LISTED`] at most, that are below `end`. Returns their
    /// number.
    fn list(&self, k: &Kernel<'k>, base: Value<'k, u32>, end: Value<'k, u32>) -> Value<'k, u32> {
        let (lane, warps) = (k.lane(), k.ntid_x() >> 5);
        k.range(k.warp(), 32, warps, |word| {
            let position = base + word * 32 + lane;
            let is_found = k.var(0_u32);
            k.when(position.lt(end), || {
                is_found.set(self.tokens.load(position).eq(self.token).select(1, 0));
            });
            let found = k.vote_ballot(is_found.get().ne(0));
            k.when(lane.eq(0), || self.found.store(word, found));
        });
        k.barrier();
        // Each warp has all words, and lists its own positions.
        let found = self.found.load(lane);
        let mut until = found.popc();
        for delta in [1, 2, 4, 8, 16] {
            let before = k.shfl_up(until, delta);
            until = until + lane.ge(delta).select(before, 0);
        }
        let lower = (k.constant(1_u32) << lane) - 1;
        k.range(k.warp(), 32, warps, |word| {
            let bits = k.shfl_idx(found, word);
            let start = k.shfl_idx(until, word) - bits.popc();
            k.when(((bits >> lane) & 1).ne(0), || {
                self.list.store(start + (bits & lower).popc(), base + word * 32 + lane);
            });
        });
        let count = k.shfl_idx(until, 31);
        k.barrier();
        count
    }
}
