//! The choice of the next token from its logits, in four kernels.
//!
//! ```text
//! z_i = logit_i, and for a token that was seen logit_i ÷ penalty (· penalty below 0)
//! w_i = exp((z_i − max z) ÷ temperature)
//! kept: z_i ≥ the top_k-th largest z, and the weights above z_i are less than top_p of those kept
//! token = argmax over the kept of (z_i − max z) ÷ temperature + g_i        temperature > 0
//! token = argmax z_i                                                       otherwise
//! ```
//!
//! The g_i are independent Gumbel numbers, so that token i comes with probability w_i ÷ Σ kept w.
//! Tokens of equal z are kept or left out together; of equal sums the lowest token wins. What is
//! chosen follows from the words of `sampling`: temperature, top_k (0 for all), top_p, penalty,
//! seed (two words) and the number of the draw. Where the greatest z is not finite the token is 0
//! and the status 1.
//!
//! | Entry | Work | Grid |
//! |---|---|---|
//! | `sample_adjust` | z, and its maximum in each chunk of 1024 tokens | a block of 128 per chunk |
//! | `sample_threshold` | the least z that is kept | one block of 1024 |
//! | `sample_draw` | the best token of each chunk | a block of 128 per chunk |
//! | `sample_pick` | the best of the chunks | one block of 128 |
//!
//! **Determinism.** Weights are whole multiples of 2⁻⁴⁰, so that their sums do not depend on the
//! order; maxima never do. The Gumbel number of a token follows from seed, draw and token alone, by
//! Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).

mod adjust;
mod draw;
pub(crate) mod mark_seen;
mod threshold;
mod weights;

use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::{Kernel, ModuleBuilder, Ptr, Value};

/// Threads of a block that has a chunk.
const THREADS: u32 = 128;
/// Tokens of a chunk.
const CHUNK: u32 = 1024;

/// The image.
pub(crate) fn module(target: SmTarget) -> Module {
    ModuleBuilder::new(target)
        .entry(adjust::entry())
        .entry(threshold::entry())
        .entry(draw::entry())
        .entry(draw::pick())
        .build()
}

/// The words of `sampling`.
struct Sampling<'k> {
    temperature: Value<'k, f32>,
    top_k: Value<'k, u32>,
    top_p: Value<'k, f32>,
    penalty: Value<'k, f32>,
    seed: [Value<'k, u32>; 2],
    draw: Value<'k, u32>,
}

impl<'k> Sampling<'k> {
    fn load(words: Ptr<'k, u32>) -> Self {
        let float = |index: u32| words.reinterpret::<f32>().load(index);
        Self {
            temperature: float(0),
            top_k: words.load(1),
            top_p: float(2),
            penalty: float(3),
            seed: [words.load(4), words.load(5)],
            draw: words.load(6),
        }
    }
}

/// Runs `body` for the first of each four tokens that belong to this thread of the chunk.
fn for_each_chunk_vec4<'k>(k: &Kernel<'k>, body: impl Fn(Value<'k, u32>)) {
    for round in 0..CHUNK / (4 * THREADS) {
        body(k.ctaid_x() * CHUNK + round * 4 * THREADS + k.tid_x() * 4);
    }
}
