//! Sampling of the next token of each sequence on the device: repetition penalty, top-k, top-p and
//! temperature.
//!
//! A token is drawn by the Gumbel-max trick: the largest sum of a scaled logit and a Gumbel number
//! from Philox 4x32-10. Deterministic: the same seed and draw give the same token.

use retrograph_kernel_abi::sampling::{self as abi, word};

use crate::checks::Check;
use crate::geometry::{MAX_GRID_YZ, linear};
use crate::launch::{ArgumentTypes, Pointer};
use crate::{Dispatch, Kernel, KernelError, Launch, Problem, View};

/// Applies the repetition penalty and finds the maximum of each chunk.
pub static SAMPLE_ADJUST: Kernel =
    Kernel::new("sample_adjust", &abi::SAMPLE_ADJUST, |problem, _| {
        per_chunk(abi::SAMPLE_ADJUST.entry(), problem)
    });

/// Finds the smallest logit that top-k and top-p keep.
pub static SAMPLE_THRESHOLD: Kernel =
    Kernel::new("sample_threshold", &abi::SAMPLE_THRESHOLD, |problem, _| {
        per_sequence(abi::SAMPLE_THRESHOLD.entry(), problem, abi::THRESHOLD_THREADS)
    });

/// Draws the best token of each chunk.
pub static SAMPLE_DRAW: Kernel = Kernel::new("sample_draw", &abi::SAMPLE_DRAW, |problem, _| {
    per_chunk(abi::SAMPLE_DRAW.entry(), problem)
});

/// Picks the best token of all chunks.
pub static SAMPLE_PICK: Kernel = Kernel::new("sample_pick", &abi::SAMPLE_PICK, |problem, _| {
    per_sequence(abi::SAMPLE_PICK.entry(), problem, abi::THREADS)
});

/// One block for each chunk of each sequence.
fn per_chunk(entry: &'static str, problem: &Problem) -> Option<Dispatch> {
    let Problem::Sampling { chunks, sequences } = *problem else { return None };
    Some(Dispatch { grid: [chunks, sequences, 1], ..linear(entry, chunks, abi::THREADS) })
}

/// One block for each sequence.
fn per_sequence(entry: &'static str, problem: &Problem, threads: u32) -> Option<Dispatch> {
    let Problem::Sampling { sequences, .. } = *problem else { return None };
    Some(Dispatch { grid: [1, sequences, 1], ..linear(entry, 1, threads) })
}

/// Kernel of [`MarkSeenTokens`].
pub static MARK_SEEN_TOKENS: Kernel =
    Kernel::new("mark_seen_tokens", &abi::MARK_SEEN_TOKENS, |problem, _| {
        let blocks = problem.items()?.div_ceil(abi::THREADS);
        Some(linear(abi::MARK_SEEN_TOKENS.entry(), blocks, abi::THREADS))
    });

/// The largest vocabulary, so that indices past its end fit in 32 bits.
const MAX_VOCAB: usize = 1 << 30;

/// Returns the number of chunks of a vocabulary: the length of `maxima`, `scores` and `tokens` in
/// [`Sample`].
pub fn sample_chunks(vocab: usize) -> usize {
    vocab.div_ceil(abi::CHUNK as usize)
}

/// Sampling parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplingParameters {
    /// Divisor of the logits. 0 chooses the largest logit after the penalty (greedy).
    pub temperature: f32,
    /// Number of largest logits to keep, including ties with the smallest of them; 0 for all.
    pub top_k: u32,
    /// Total probability of the most likely tokens to keep; 1 for all.
    pub top_p: f32,
    /// Repetition penalty: positive logits of seen tokens are divided by it, negative ones
    /// multiplied; 1 for none.
    pub repetition_penalty: f32,
    /// The seed of all draws.
    pub seed: u64,
    /// The number of the draw.
    pub draw: u32,
}

impl SamplingParameters {
    /// Words of the operand `sampling` of [`Sample`].
    pub const LEN: usize = word::COUNT;

    /// The operand `sampling` of [`Sample`].
    pub fn words(self) -> [u32; Self::LEN] {
        let Self { temperature, top_k, top_p, repetition_penalty: penalty, seed, draw } = self;
        let mut words = [0; Self::LEN];
        words[word::TEMPERATURE] = temperature.to_bits();
        words[word::TOP_K] = top_k;
        words[word::TOP_P] = top_p.to_bits();
        words[word::PENALTY] = penalty.to_bits();
        words[word::SEED_LOW] = seed as u32;
        words[word::SEED_HIGH] = (seed >> 32) as u32;
        words[word::DRAW] = draw;
        words
    }
}

/// The four launches that choose a token for each sequence, to be run in order. A sequence has the
/// same result alone and with others.
#[derive(Clone, Copy, Debug)]
pub struct Sample<B> {
    /// `[sequences, vocab]`, read.
    pub logits: View<B, f32>,
    /// `[sequences, vocab]`, read: nonzero for tokens with a penalty.
    pub seen: View<B, u32>,
    /// `[sequences, SamplingParameters::LEN]`, read: [`SamplingParameters::words`].
    pub sampling: View<B, u32>,
    /// `[sequences, vocab]`, written: the logits after the penalty.
    pub adjusted: View<B, f32>,
    /// `[sequences, sample_chunks(vocab)]`, written: the maximum of each chunk.
    pub maxima: View<B, f32>,
    /// `[sequences, 2]`, written: the bits of the maximum, and the smallest sort key that is kept.
    pub selection: View<B, u32>,
    /// `[sequences, sample_chunks(vocab)]`, written: the best score of each chunk.
    pub scores: View<B, f32>,
    /// `[sequences, sample_chunks(vocab)]`, written: the token with that score.
    pub tokens: View<B, u32>,
    /// `[2, sequences]`, written: the tokens, then their statuses. The status is 0; if the greatest
    /// logit is not finite, it is 1 and the token 0.
    pub sampled: View<B, u32>,
    /// Tokens of the vocabulary.
    pub vocab: usize,
}

impl<B: Copy> Sample<B> {
    /// Checks the operands and describes the launches.
    ///
    /// # Errors
    /// If the vocabulary is empty or too large, there are too many sequences, or a length does not
    /// match.
    pub fn launches(self) -> Result<[Launch<B>; 4], KernelError> {
        let Self { logits, seen, sampling, adjusted, maxima, selection, .. } = self;
        let Self { scores, tokens, sampled, .. } = self;
        let check = Check(SAMPLE_ADJUST.name);
        let vocab = check.at_most("vocab", self.vocab, MAX_VOCAB)?;
        check.rule(vocab > 0, "the vocabulary must have at least one token", self.vocab)?;
        let rows = logits.len() / self.vocab;
        let sequences = check.at_most("sequences", rows, MAX_GRID_YZ)?;
        let per_chunk = rows * sample_chunks(self.vocab);
        check.length("logits", logits, rows * self.vocab)?;
        check.length("seen", seen, logits.len())?;
        check.length("sampling", sampling, rows * SamplingParameters::LEN)?;
        check.length("adjusted", adjusted, logits.len())?;
        check.length("maxima", maxima, per_chunk)?;
        check.length("selection", selection, rows * 2)?;
        check.length("scores", scores, per_chunk)?;
        check.length("tokens", tokens, per_chunk)?;
        check.length("sampled", sampled, 2 * rows)?;
        let chunks = check.size("the number of chunks", sample_chunks(self.vocab))?;
        let adjust = abi::SampleAdjustParameters::<ArgumentTypes<B>> {
            logits: Pointer::read(logits),
            seen: Pointer::read(seen),
            sampling: Pointer::read(sampling),
            adjusted: Pointer::write(adjusted),
            maxima: Pointer::write(maxima),
            vocab,
        };
        let threshold = abi::SampleThresholdParameters::<ArgumentTypes<B>> {
            adjusted: Pointer::read(adjusted),
            maxima: Pointer::read(maxima),
            sampling: Pointer::read(sampling),
            selection: Pointer::write(selection),
            vocab,
            chunks,
        };
        let draw = abi::SampleDrawParameters::<ArgumentTypes<B>> {
            adjusted: Pointer::read(adjusted),
            selection: Pointer::read(selection),
            sampling: Pointer::read(sampling),
            scores: Pointer::write(scores),
            tokens: Pointer::write(tokens),
            vocab,
        };
        let pick = abi::SamplePickParameters::<ArgumentTypes<B>> {
            scores: Pointer::read(scores),
            tokens: Pointer::read(tokens),
            selection: Pointer::read(selection),
            sampled: Pointer::write(sampled),
            chunks,
        };
        let problem = Problem::Sampling { chunks, sequences };
        let launch = |kernel, arguments| Launch { kernel, problem, arguments };
        Ok([
            launch(&SAMPLE_ADJUST, adjust.into_arguments()),
            launch(&SAMPLE_THRESHOLD, threshold.into_arguments()),
            launch(&SAMPLE_DRAW, draw.into_arguments()),
            launch(&SAMPLE_PICK, pick.into_arguments()),
        ])
    }
}

/// `seen[tokens[i]] = 1` for the first `count` tokens, or `seen[i][tokens[i]] = 1` with a row for
/// each token. Tokens that are not in the vocabulary are skipped.
#[derive(Clone, Copy, Debug)]
pub struct MarkSeenTokens<B> {
    /// `[n]`, read.
    pub tokens: View<B, u32>,
    /// `[vocab]` or `[n, vocab]`, partly written.
    pub seen: View<B, u32>,
    /// `[1]`, read: the number of tokens to mark; all if `None`.
    pub count: Option<View<B, u32>>,
    /// Tokens of the vocabulary.
    pub vocab: usize,
}

impl<B: Copy> MarkSeenTokens<B> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If the length of `seen` does not match, `count` does not have one element, or there are too
    /// many tokens.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { tokens, seen, count, vocab } = self;
        let check = Check(MARK_SEEN_TOKENS.name);
        let n = check.size("the number of tokens", tokens.len())?;
        let row_stride = if seen.len() == vocab { 0 } else { vocab };
        if row_stride > 0 {
            check.length("seen", seen, check.product("n × vocab", &[tokens.len(), vocab])?)?;
        }
        if let Some(count) = count {
            check.length("count", count, 1)?;
        }
        let parameters = abi::MarkSeenTokensParameters::<ArgumentTypes<B>> {
            tokens: Pointer::read(tokens),
            seen: Pointer::update(seen),
            count: Pointer::read_optional(count),
            n,
            vocab: check.size("vocab", vocab)?,
            row_stride: check.size("vocab", row_stride)?,
        };
        let arguments = parameters.into_arguments();
        Ok(Launch { kernel: &MARK_SEEN_TOKENS, problem: Problem::Items(n), arguments })
    }
}
