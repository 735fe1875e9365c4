//! Sampling of the next token on the device: repetition penalty, top-k, top-p and temperature.
//!
//! A token is drawn by the Gumbel-max trick: the greatest sum of a scaled logit and a Gumbel number
//! of Philox 4x32-10. Deterministic: the same seed and draw give the same token.

use crate::checks::Check;
use crate::geometry::linear;
use crate::params::{pointer, u32};
use crate::{Argument, Dispatch, Kernel, KernelError, Launch, Parameter, Problem, SmTarget, View};

const fn kernel(
    name: &'static str,
    parameters: &'static [Parameter],
    entries: &'static [&'static str],
    dispatch: fn(&Problem, SmTarget) -> Option<Dispatch>,
) -> Kernel {
    Kernel { name, image: "sample", parameters, entries, dispatch }
}

/// Applies the repetition penalty and finds the maximum of each chunk.
pub static SAMPLE_ADJUST: Kernel = kernel(
    "sample_adjust",
    &[
        pointer("logits"),
        pointer("seen"),
        pointer("sampling"),
        pointer("adjusted"),
        pointer("maxima"),
        u32("vocab"),
    ],
    &["sample_adjust"],
    |problem, _| problem.items().map(|chunks| linear("sample_adjust", chunks, CHUNK_THREADS)),
);
/// Finds the least logit that top-k and top-p keep.
pub static SAMPLE_THRESHOLD: Kernel = kernel(
    "sample_threshold",
    &[
        pointer("adjusted"),
        pointer("maxima"),
        pointer("sampling"),
        pointer("selection"),
        u32("vocab"),
        u32("chunks"),
    ],
    &["sample_threshold"],
    |problem, _| problem.items().map(|_| linear("sample_threshold", 1, 1024)),
);
/// Draws the best token of each chunk.
pub static SAMPLE_DRAW: Kernel = kernel(
    "sample_draw",
    &[
        pointer("adjusted"),
        pointer("selection"),
        pointer("sampling"),
        pointer("scores"),
        pointer("tokens"),
        u32("vocab"),
    ],
    &["sample_draw"],
    |problem, _| problem.items().map(|chunks| linear("sample_draw", chunks, CHUNK_THREADS)),
);
/// Picks the best token of all chunks.
pub static SAMPLE_PICK: Kernel = kernel(
    "sample_pick",
    &[
        pointer("scores"),
        pointer("tokens"),
        pointer("selection"),
        pointer("sampled"),
        u32("chunks"),
    ],
    &["sample_pick"],
    |problem, _| problem.items().map(|_| linear("sample_pick", 1, CHUNK_THREADS)),
);

/// Kernel of [`MarkTokens`].
pub static MARK_TOKENS: Kernel = Kernel {
    name: "mark_seen_tokens",
    image: "mark_seen_tokens",
    parameters: &[pointer("tokens"), pointer("seen"), pointer("count"), u32("n"), u32("vocab")],
    entries: &["mark_seen_tokens"],
    dispatch: |problem, _| {
        problem.items().map(|tokens| linear("mark_seen_tokens", tokens.div_ceil(128), 128))
    },
};

/// Threads of the block of a chunk.
const CHUNK_THREADS: u32 = 128;
/// Tokens of a chunk.
const CHUNK: usize = 1024;
/// The largest vocabulary, so that indices past its end fit in 32 bits.
const MAX_VOCAB: usize = 1 << 30;

/// Number of chunks of a vocabulary: of maxima, scores and tokens in [`Sample`].
pub fn sample_chunks(vocab: usize) -> usize {
    vocab.div_ceil(CHUNK)
}

/// The parameters of sampling, as the kernels read them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplingParameters {
    /// Logits are divided by this. At 0 the greatest logit is chosen (greedy), after the penalty.
    pub temperature: f32,
    /// Number of greatest logits to keep, with all that equal the last of them; 0 for all.
    pub top_k: u32,
    /// The likeliest tokens are kept until their probabilities sum up to this; 1 for all.
    pub top_p: f32,
    /// Repetition penalty: positive logits of seen tokens are divided by this, negative ones
    /// multiplied; 1 for none.
    pub penalty: f32,
    /// The seed of all draws.
    pub seed: u64,
    /// The number of the draw.
    pub draw: u32,
}

impl SamplingParameters {
    /// Words of the operand `sampling` of [`Sample`].
    pub const LEN: usize = 7;

    /// The operand `sampling` of [`Sample`].
    pub fn words(self) -> [u32; Self::LEN] {
        let Self { temperature, top_k, top_p, penalty, seed, draw } = self;
        let [temperature, top_p, penalty] = [temperature, top_p, penalty].map(f32::to_bits);
        [temperature, top_k, top_p, penalty, seed as u32, (seed >> 32) as u32, draw]
    }
}

/// The four launches that choose a token from logits, to be run in order.
#[derive(Clone, Copy, Debug)]
pub struct Sample<B> {
    /// `[vocab]`, read.
    pub logits: View<B, f32>,
    /// `[vocab]`, read: not 0 for tokens with a penalty.
    pub seen: View<B, u32>,
    /// `[SamplingParameters::LEN]`, read: [`SamplingParameters::words`].
    pub sampling: View<B, u32>,
    /// `[vocab]`, written: the logits after the penalty.
    pub adjusted: View<B, f32>,
    /// `[sample_chunks(vocab)]`, written: the maximum of each chunk.
    pub maxima: View<B, f32>,
    /// `[2]`, written: the bits of the maximum, and the least key that is kept.
    pub selection: View<B, u32>,
    /// `[sample_chunks(vocab)]`, written: the best score of each chunk.
    pub scores: View<B, f32>,
    /// `[sample_chunks(vocab)]`, written: the token with that score.
    pub tokens: View<B, u32>,
    /// `[2]`, written: the token and 0, or 0 and 1 if the greatest logit is not finite.
    pub sampled: View<B, u32>,
}

impl<B: Copy> Sample<B> {
    /// Checks the operands and describes the launches.
    pub fn launches(self) -> Result<[Launch<B>; 4], KernelError> {
        let Self { logits, seen, sampling, adjusted, maxima, selection, .. } = self;
        let Self { scores, tokens, sampled, .. } = self;
        let check = Check(SAMPLE_ADJUST.name);
        let vocab = check.at_most("vocab", logits.len(), MAX_VOCAB)?;
        check.rule(vocab > 0, "the vocabulary must have a token", (logits.len(), 1))?;
        let count = sample_chunks(logits.len());
        check.length("seen", seen, logits.len())?;
        check.length("sampling", sampling, SamplingParameters::LEN)?;
        check.length("adjusted", adjusted, logits.len())?;
        check.length("maxima", maxima, count)?;
        check.length("selection", selection, 2)?;
        check.length("scores", scores, count)?;
        check.length("tokens", tokens, count)?;
        check.length("sampled", sampled, 2)?;
        let chunks = check.size("the number of chunks", count)?;
        let (read, write) = (Argument::read::<f32>, Argument::write::<f32>);
        let (read_u32, write_u32) = (Argument::read::<u32>, Argument::write::<u32>);
        let launch =
            |kernel, arguments| Launch { kernel, problem: Problem::Items(chunks), arguments };
        let size = |size| Argument::U32(size);
        Ok([
            launch(
                &SAMPLE_ADJUST,
                vec![
                    read(logits),
                    read_u32(seen),
                    read_u32(sampling),
                    write(adjusted),
                    write(maxima),
                    size(vocab),
                ],
            ),
            launch(
                &SAMPLE_THRESHOLD,
                vec![
                    read(adjusted),
                    read(maxima),
                    read_u32(sampling),
                    write_u32(selection),
                    size(vocab),
                    size(chunks),
                ],
            ),
            launch(
                &SAMPLE_DRAW,
                vec![
                    read(adjusted),
                    read_u32(selection),
                    read_u32(sampling),
                    write(scores),
                    write_u32(tokens),
                    size(vocab),
                ],
            ),
            launch(
                &SAMPLE_PICK,
                vec![
                    read(scores),
                    read_u32(tokens),
                    read_u32(selection),
                    write_u32(sampled),
                    size(chunks),
                ],
            ),
        ])
    }
}

/// `seen[tokens[i]] = 1` for the first `count` tokens. Tokens that are not in the vocabulary are
/// left out.
#[derive(Clone, Copy, Debug)]
pub struct MarkTokens<B> {
    /// `[n]`, read.
    pub tokens: View<B, u32>,
    /// `[vocab]`, written in part.
    pub seen: View<B, u32>,
    /// `[1]`, read: the number of tokens to mark; all if `None`.
    pub count: Option<View<B, u32>>,
}

impl<B: Copy> MarkTokens<B> {
    /// Checks the operands and describes the launch.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { tokens, seen, count } = self;
        let check = Check(MARK_TOKENS.name);
        let n = check.size("the number of tokens", tokens.len())?;
        let vocab = check.size("vocab", seen.len())?;
        if let Some(count) = count {
            check.length("count", count, 1)?;
        }
        let arguments = vec![
            Argument::read(tokens),
            Argument::update(seen),
            Argument::read_optional(count),
            Argument::U32(n),
            Argument::U32(vocab),
        ];
        Ok(Launch { kernel: &MARK_TOKENS, problem: Problem::Items(n), arguments })
    }
}
