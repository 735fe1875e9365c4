//! Sampling of the next token of each sequence from its logits, in four kernels.
//!
//! ```text
//! z_i   = logit_i; if token i was seen: logit_i ÷ penalty if logit_i ≥ 0, else logit_i · penalty
//! w_i   = exp((z_i − max z) ÷ temperature)
//! kept  = top-k: z_i ≥ the top_k-th largest z; then
//!         top-p: Σ of the kept w above z_i < top_p · Σ kept w
//! token = argmax over the kept i of (z_i − max z) ÷ temperature + g_i        temperature > 0
//! token = argmax z_i                                                         otherwise
//! ```
//!
//! The g_i are independent Gumbel random numbers, so token i has probability w_i ÷ Σ kept w
//! (Gumbel-max trick). Tokens of equal z are kept or dropped together; ties go to the lowest token.
//! The words of `sampling` are temperature, top_k (0: all), top_p, penalty, seed (two words) and
//! draw number. If max z is not finite, the token is 0 and the status 1.
//!
//! The y index of a block is its sequence; the table has the blocks of a sequence:
//!
//! | Entry | Computes | Grid |
//! |---|---|---|
//! | `sample_adjust` | z, and its maximum per chunk of 1024 tokens | one block of 128 per chunk |
//! | `sample_threshold` | the smallest z that is kept | one block of 1024 |
//! | `sample_draw` | the best token of each chunk | one block of 128 per chunk |
//! | `sample_pick` | the best of all chunks | one block of 128 |
//!
//! **Determinism.** Weights are integer multiples of 2⁻⁴⁰, so their sums don't depend on the order.
//! The Gumbel number of a token is a function of seed, draw and token, by Philox 4x32-10 (Salmon et
//! al., "Parallel random numbers: as easy as 1, 2, 3", 2011).

mod adjust;
mod draw;
pub(crate) mod mark_seen;
mod threshold;
mod weights;

use retrograph_kernel_abi::sampling::{CHUNK, THREADS, word};
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::{Arg, Kernel, ModuleBuilder, Ptr, Scalar, Value};

/// Builds the image.
pub(crate) fn module(target: SmTarget) -> Module {
    ModuleBuilder::new(target)
        .entry(adjust::entry())
        .entry(threshold::entry())
        .entry(draw::entry())
        .entry(draw::pick())
        .build()
}

/// The sampling parameters.
struct Sampling<'k> {
    temperature: Value<'k, f32>,
    top_k: Value<'k, u32>,
    top_p: Value<'k, f32>,
    penalty: Value<'k, f32>,
    seed: [Value<'k, u32>; 2],
    draw: Value<'k, u32>,
}

impl<'k> Sampling<'k> {
    /// Loads the parameters of the block's sequence.
    fn load(words: Ptr<'k, u32>) -> Self {
        let words = of_sequence(words, word::COUNT as u32);
        let float = |index: usize| words.reinterpret::<f32>().load(index);
        Self {
            temperature: float(word::TEMPERATURE),
            top_k: words.load(word::TOP_K),
            top_p: float(word::TOP_P),
            penalty: float(word::PENALTY),
            seed: [words.load(word::SEED_LOW), words.load(word::SEED_HIGH)],
            draw: words.load(word::DRAW),
        }
    }
}

/// The row of the block's sequence in `rows`, `[sequences, width]`.
fn of_sequence<'k, T: Scalar>(rows: Ptr<'k, T>, width: impl Arg<'k, u32>) -> Ptr<'k, T> {
    rows.at(rows.kernel().ctaid_y().mul_wide(width))
}

/// Runs `body` with the first token of each vec4 of this thread in the block's chunk.
fn for_each_chunk_vec4<'k>(k: &Kernel<'k>, body: impl Fn(Value<'k, u32>)) {
    for round in 0..CHUNK / (4 * THREADS) {
        body(k.ctaid_x() * CHUNK + round * 4 * THREADS + k.tid_x() * 4);
    }
}
