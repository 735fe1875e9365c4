//! Causal attention without stored probabilities, and its gradients, with factors in bf16.
//!
//! ```text
//! s_ij  = scale · q_i·k_j                                                    j ≤ i
//! out_i = Σ_j exp(s_ij − max_i) · v_j ÷ Σ_j exp(s_ij − max_i)        lse_i = log₂ Σ_j exp(s_ij)
//! p_ij  = exp(s_ij) ÷ 2^lse_i        delta_i = bf16(grad_out_i)·out_i
//! ds_ij = p_ij · (grad_out_i·v_j − delta_i)
//! grad_q_i = scale · Σ_j ds_ij · k_j        grad_k_j = scale · Σ_i ds_ij · q_i
//! grad_v_j = Σ_i p_ij · grad_out_i
//! ```
//!
//! The algorithm is that of FlashAttention-2 (Dao 2023, arXiv 2307.08691): a block keeps 64 rows,
//! walks over tiles of the other side up to the diagonal or from it on, and keeps scores in
//! registers; the gradients compute them again. Operands are f32 in memory and are rounded to bf16
//! on their way into shared memory; probabilities and gradients of scores are rounded to bf16 in
//! registers. Sums are f32.
//!
//! **Grid.** Each entry has heads of up to 64 or 128 elements, narrower ones padded with zeros. A
//! block has four warps of 16 rows each: [`forward`] and `grad_q` have a block for each 64 queries
//! of a head, those with the most keys first; `grad_kv` has one for each 64 keys of a key head and
//! part of its group, those with the most queries first. What they walk over they take 32 rows at
//! a time.
//!
//! **Determinism.** Tiles are walked over in ascending order, heads of a group likewise. Each sum
//! belongs to one lane or to four that add up by a butterfly. There are no atomics: `grad_q` and
//! `grad_kv` each compute the probabilities that they need.
//!
//! Absent on purpose: masks other than the causal one, and a target-dependent choice of tiles.

mod backward;
mod forward;
mod panel;
mod product;
mod rows;
mod weights;
mod write;

use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::{Kernel, ModuleBuilder, Value, Var};

use crate::bf16::pack;
use product::Held;

/// Rows that a block keeps, 16 for each warp.
const ROWS: u32 = 64;
/// Rows of the other side that a block walks over at a time.
const COLUMNS: u32 = 32;
/// Threads of a block.
const THREADS: u32 = 128;
/// The widest heads of the entries.
const WIDTHS: [u32; 2] = [64, 128];

/// What a lane holds of 16 × 8 elements: two neighbours in a row, and two 8 rows below.
type Patch<'k> = [Var<'k, f32>; 4];

/// Patches of 16 rows and `columns` columns, all 0.
fn patches<'k>(k: &Kernel<'k>, columns: u32) -> Vec<Patch<'k>> {
    (0..columns / 8).map(|_| [(); 4].map(|()| k.var(0.0f32))).collect()
}

/// The first of the lane's rows among those of the block; the other one is 8 below.
fn own_row<'k>(k: &Kernel<'k>) -> Value<'k, u32> {
    k.warp() * 16 + (k.lane() >> 2)
}

/// The first of the lane's two columns of each patch.
fn own_column<'k>(k: &Kernel<'k>) -> Value<'k, u32> {
    (k.lane() & 3) * 2
}

/// Patches as factors of the next product.
fn hold<'k>(target: SmTarget, patches: &[Patch<'k>]) -> Held<'k> {
    let pair = |patch: &Patch<'k>, half: usize| {
        pack(target, [patch[half * 2].get(), patch[half * 2 + 1].get()])
    };
    patches.iter().map(|patch| [pair(patch, 0), pair(patch, 1)]).collect()
}

/// Puts `value` where a key is behind its query, which rows are, or columns. The block's part of
/// the rows and of the columns begins at `first`.
fn hide<'k>(
    k: &Kernel<'k>,
    (first, rows_are_queries): ([Value<'k, u32>; 2], bool),
    patches: &[Patch<'k>],
    value: f32,
) {
    let ahead = first[0] + own_row(k) - first[1] - own_column(k);
    let ahead = [0, 8].map(|below| (ahead + below).cast::<i32>());
    for (j, patch) in (0..).zip(patches) {
        for (place, element) in patch.iter().enumerate() {
            let (ahead, column) = (ahead[place / 2], j * 8 + place as i32 % 2);
            let hidden = if rows_are_queries { ahead.lt(column) } else { ahead.gt(column) };
            element.update(|element| hidden.select(value, element));
        }
    }
}

/// The image of the forward pass.
pub(crate) fn forward(target: SmTarget) -> Module {
    let entries = WIDTHS.map(|width| forward::entry(target, width));
    entries.into_iter().fold(ModuleBuilder::new(target), ModuleBuilder::entry).build()
}

/// The image of the backward pass.
pub(crate) fn backward(target: SmTarget) -> Module {
    let sides = [backward::Side::Queries, backward::Side::Keys];
    let entries = sides.into_iter().flat_map(|side| WIDTHS.map(|width| (side, width)));
    let module = ModuleBuilder::new(target).entry(rows::entry(target));
    entries
        .fold(module, |module, (side, width)| module.entry(backward::entry(target, width, side)))
        .build()
}
