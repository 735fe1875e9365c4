//! Causal attention without stored probabilities, and its gradients, with factors in bf16 or f32.
//!
//! ```text
//! s_ij  = scale · q_i·k_j                                                    j ≤ i
//! out_i = Σ_j exp(s_ij − max_i) · v_j ÷ Σ_j exp(s_ij − max_i)        lse_i = log₂ Σ_j exp(s_ij)
//! p_ij  = exp(s_ij) ÷ 2^lse_i        delta_i = grad_out_i·out_i
//! ds_ij = p_ij · (grad_out_i·v_j − delta_i)
//! grad_q_i = scale · Σ_j ds_ij · k_j        grad_k_j = scale · Σ_i ds_ij · q_i
//! grad_v_j = Σ_i p_ij · grad_out_i
//! ```
//!
//! The algorithm is that of FlashAttention-2 (Dao 2023, arXiv 2307.08691): a block keeps 64 rows,
//! walks over tiles of the other side up to the diagonal or from it on, and keeps scores in
//! registers; the gradients compute them again. Operands are f32 in memory, and sums are f32.
//!
//! **bf16.** Operands are rounded to bf16 on their way into shared memory, grad_out for delta, too;
//! probabilities and gradients of scores in registers.
//!
//! **f32.** Operands are copied into shared memory as they are, behind the backs of the threads.
//! From sm_80 on each factor is split into two parts of 11 bits, and three products of tf32 stand
//! for one, in the order and within the limits of `gemm/stream/split.rs`: 32 steps of a contraction
//! are added up from zero, and what they give is added in f32.
//!
//! **Grid.** Each entry has heads of up to 64 or 128 elements, narrower ones padded with zeros. A
//! block has a warp for each 16 of its rows: [`forward`] and `grad_q` have a block for each 64
//! queries of a head, those with the most keys first; `grad_kv` has one for each 64 keys of a key
//! head and part of its group, those with the most queries first. What they walk over they take 32
//! rows at a time. Before sm_80 shared memory has room for 32 rows of a block in f32.
//!
//! **Determinism.** Tiles are walked over in ascending order, heads of a group likewise. Each sum
//! belongs to one lane or to four that add up by a butterfly. There are no atomics: `grad_q` and
//! `grad_kv` each compute the probabilities that they need.
//!
//! Absent on purpose: masks other than the causal one.

mod backward;
mod backward_preprocess;
mod config;
pub(crate) mod decode;
mod epilogue;
mod fma;
mod forward;
pub(crate) mod kv_cache_append;
mod loader;
mod mma;
mod score_grads;
pub(crate) mod softmax;
pub(crate) mod softmax_backward;

use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::{Kernel, ModuleBuilder, Value, Var};

use backward::Side;
use config::{Factors, Shape};

/// Rows of the other side that a block walks over at a time.
const COLUMNS: u32 = 32;

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

/// The image of the forward pass in bf16.
pub(crate) fn forward(target: SmTarget) -> Module {
    forward_in(target, Factors::Brain)
}

/// The image of the forward pass in f32.
pub(crate) fn forward_f32(target: SmTarget) -> Module {
    forward_in(target, Factors::Single)
}

/// The image of the backward pass in bf16.
pub(crate) fn backward(target: SmTarget) -> Module {
    backward_in(target, Factors::Brain)
}

/// The image of the backward pass in f32.
pub(crate) fn backward_f32(target: SmTarget) -> Module {
    backward_in(target, Factors::Single)
}

fn forward_in(target: SmTarget, factors: Factors) -> Module {
    let entries = Shape::all(target, factors).map(forward::entry);
    entries.into_iter().fold(ModuleBuilder::new(target), ModuleBuilder::entry).build()
}

fn backward_in(target: SmTarget, factors: Factors) -> Module {
    let shapes = Shape::all(target, factors);
    let module = ModuleBuilder::new(target).entry(backward_preprocess::entry(shapes[0]));
    let entries =
        [Side::Queries, Side::Keys].into_iter().flat_map(|side| shapes.map(|s| (s, side)));
    entries.fold(module, |module, (shape, side)| module.entry(backward::entry(shape, side))).build()
}

/// The entries in f32, with the bytes of shared memory that a launch must provide.
pub(crate) fn dynamic_shared(target: SmTarget) -> impl Iterator<Item = (String, u32)> {
    Shape::all(target, Factors::Single).into_iter().flat_map(|shape| {
        [
            (forward::name(shape), forward::panels(shape).1 * 4),
            (backward::name(shape, Side::Queries), backward::panels(shape).1 * 4),
            (backward::name(shape, Side::Keys), backward::panels(shape).1 * 4),
        ]
    })
}
