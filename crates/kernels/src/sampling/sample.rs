//! The choice of the next token on the device, see `kernels-ptx/src/sample.rs` for the formula.

use crate::checks::Check;
use crate::geometry::linear;
use crate::params::{pointer, u32};
use crate::{Argument, Kernel, KernelError, Launch, Parameter, Problem, View};

const fn kernel(
    name: &'static str,
    parameters: &'static [Parameter],
    entries: &'static [&'static str],
    dispatch: fn(&Problem, crate::SmTarget) -> crate::Dispatch,
) -> Kernel {
    Kernel { name, image: "sample", parameters, entries, dispatch }
}

/// The logits after the penalty.
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
    |problem, _| linear("sample_adjust", problem.sizes[0], CHUNK_THREADS),
);
/// The least value that is kept.
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
    |_, _| linear("sample_threshold", 1, 1024),
);
/// The best token of each chunk.
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
    |problem, _| linear("sample_draw", problem.sizes[0], CHUNK_THREADS),
);
/// The best of the chunks.
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
    |_, _| linear("sample_pick", 1, CHUNK_THREADS),
);

/// Kernel of [`MarkTokens`].
pub static MARK_TOKENS: Kernel = Kernel {
    name: "mark_seen_tokens",
    image: "mark_seen_tokens",
    parameters: &[pointer("tokens"), pointer("seen"), pointer("count"), u32("n"), u32("vocab")],
    entries: &["mark_seen_tokens"],
    dispatch: |problem, _| linear("mark_seen_tokens", problem.sizes[0].div_ceil(128), 128),
};

/// Threads of a block that has a chunk of tokens.
const CHUNK_THREADS: u32 = 128;
/// Tokens of a chunk.
const CHUNK: usize = 1024;
/// The largest vocabulary, so that the end of a round that starts inside has an index of 32 bits.
const LARGEST: usize = 1 << 30;

/// Chunks of a vocabulary: so many maxima, scores and tokens the kernels of sampling need.
pub fn sample_chunks(vocab: usize) -> usize {
    vocab.div_ceil(CHUNK)
}

/// How the next token is chosen, as the kernels read it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplingWords {
    /// Logits are divided by this; at 0 the greatest is taken, and nothing else matters but the
    /// penalty.
    pub temperature: f32,
    /// So many of the greatest logits are kept, and what equals the last of them; 0 for all.
    pub top_k: u32,
    /// The least number of the likeliest tokens is kept whose probabilities reach this; from 1 on
    /// all are.
    pub top_p: f32,
    /// Logits of tokens that were seen are divided by this, and multiplied below 0; 1 for nothing.
    pub penalty: f32,
    /// Seed of the draws.
    pub seed: u64,
    /// The number of the draw.
    pub draw: u32,
}

impl SamplingWords {
    /// Words of the operand `sampling`.
    pub const LEN: usize = 7;

    /// The operand.
    pub fn words(self) -> [u32; Self::LEN] {
        let Self { temperature, top_k, top_p, penalty, seed, draw } = self;
        let [temperature, top_p, penalty] = [temperature, top_p, penalty].map(f32::to_bits);
        [temperature, top_k, top_p, penalty, seed as u32, (seed >> 32) as u32, draw]
    }
}

/// The four launches that choose a token from its logits, to be run in order.
#[derive(Clone, Copy, Debug)]
pub struct Sample<B> {
    /// `[vocab]`, read.
    pub logits: View<B, f32>,
    /// `[vocab]`, read: not 0 for tokens that the penalty is for.
    pub seen: View<B, u32>,
    /// [`SamplingWords::LEN`] elements, read.
    pub sampling: View<B, u32>,
    /// `[vocab]`, written: the logits after the penalty.
    pub adjusted: View<B, f32>,
    /// [`sample_chunks`] elements, written: the maximum of each chunk.
    pub maxima: View<B, f32>,
    /// 2 elements, written: bits of the maximum, and the least key that is kept.
    pub selection: View<B, u32>,
    /// [`sample_chunks`] elements, written: the best score of each chunk.
    pub scores: View<B, f32>,
    /// [`sample_chunks`] elements, written: its token.
    pub tokens: View<B, u32>,
    /// 2 elements, written: the token, and 0, or 1 where the greatest logit is not finite and the
    /// token is 0 for that.
    pub sampled: View<B, u32>,
}

impl<B: Copy> Sample<B> {
    /// Checks the operands and describes the launches.
    pub fn launches(self) -> Result<[Launch<B>; 4], KernelError> {
        let Self { logits, seen, sampling, adjusted, maxima, selection, .. } = self;
        let Self { scores, tokens, sampled, .. } = self;
        let check = Check(SAMPLE_ADJUST.name);
        let vocab = check.at_most("vocab", logits.len(), LARGEST)?;
        check.rule(vocab > 0, "there is a token", (logits.len(), 1))?;
        let count = sample_chunks(logits.len());
        check.length("seen", seen, logits.len())?;
        check.length("sampling", sampling, SamplingWords::LEN)?;
        check.length("adjusted", adjusted, logits.len())?;
        check.length("maxima", maxima, count)?;
        check.length("selection", selection, 2)?;
        check.length("scores", scores, count)?;
        check.length("tokens", tokens, count)?;
        check.length("sampled", sampled, 2)?;
        let chunks = check.size("the number of chunks", count)?;
        let (read, write) = (Argument::read::<f32>, Argument::write::<f32>);
        let (read_u32, write_u32) = (Argument::read::<u32>, Argument::write::<u32>);
        let launch = |kernel, arguments| Launch { kernel, problem: [chunks].into(), arguments };
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

/// `seen[tokens[i]] = 1` for the first `count` tokens; those past the vocabulary are left out.
#[derive(Clone, Copy, Debug)]
pub struct MarkTokens<B> {
    /// Read.
    pub tokens: View<B, u32>,
    /// `[vocab]`, written in part.
    pub seen: View<B, u32>,
    /// How many tokens count, one element, read; all without it.
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
            count.map_or(Argument::Null, Argument::read),
            Argument::U32(n),
            Argument::U32(vocab),
        ];
        Ok(Launch { kernel: &MARK_TOKENS, problem: Problem::from([n]), arguments })
    }
}
