//! Sampling of the next token of each sequence from its logits.
//!
//! Operands have one row per sequence, `[sequences, …]`, except `sampled`. Each sequence is a y
//! index of the grid.

use crate::Signature;
use crate::parameters::parameters;

/// Tokens of a chunk of the vocabulary.
pub const CHUNK: u32 = 1024;
/// Threads of a block of every entry except [`SAMPLE_THRESHOLD`].
pub const THREADS: u32 = 128;
/// Threads of the block of [`SAMPLE_THRESHOLD`].
pub const THRESHOLD_THREADS: u32 = 1024;

/// The words of the operand `sampling`.
pub mod word {
    /// The temperature, f32.
    pub const TEMPERATURE: usize = 0;
    /// The number of largest logits to keep, or 0 for all.
    pub const TOP_K: usize = 1;
    /// The probability to keep, f32.
    pub const TOP_P: usize = 2;
    /// The repetition penalty, f32.
    pub const PENALTY: usize = 3;
    /// The lower half of the seed.
    pub const SEED_LOW: usize = 4;
    /// The upper half of the seed.
    pub const SEED_HIGH: usize = 5;
    /// The number of the draw.
    pub const DRAW: usize = 6;
    /// Number of words.
    pub const COUNT: usize = 7;
}

parameters! {
    /// The parameters of [`SAMPLE_ADJUST`].
    pub struct SampleAdjustParameters {
        /// `[sequences, vocab]` logits, read.
        logits: pointer<f32>,
        /// `[sequences, vocab]` marks, read: nonzero for tokens with a penalty.
        seen: pointer<u32>,
        /// The words of [`word`] of each sequence, read.
        sampling: pointer<u32>,
        /// `[sequences, vocab]` logits after the penalty, written.
        adjusted: pointer<f32>,
        /// `[sequences, chunks]`, written: the maximum of each chunk.
        maxima: pointer<f32>,
        /// Number of tokens.
        vocab: u32,
    }
}

parameters! {
    /// The parameters of [`SAMPLE_THRESHOLD`].
    pub struct SampleThresholdParameters {
        /// `[sequences, vocab]` logits after the penalty, read.
        adjusted: pointer<f32>,
        /// `[sequences, chunks]`, read: the maximum of each chunk.
        maxima: pointer<f32>,
        /// The words of [`word`] of each sequence, read.
        sampling: pointer<u32>,
        /// `[sequences, 2]`, written: the bits of the maximum, the smallest sort key that is kept.
        selection: pointer<u32>,
        /// Number of tokens.
        vocab: u32,
        /// Number of chunks.
        chunks: u32,
    }
}

parameters! {
    /// The parameters of [`SAMPLE_DRAW`].
    pub struct SampleDrawParameters {
        /// `[sequences, vocab]` logits after the penalty, read.
        adjusted: pointer<f32>,
        /// `[sequences, 2]`, read: the bits of the maximum and the smallest sort key that is kept.
        selection: pointer<u32>,
        /// The words of [`word`] of each sequence, read.
        sampling: pointer<u32>,
        /// `[sequences, chunks]`, written: the best score of each chunk.
        scores: pointer<f32>,
        /// `[sequences, chunks]`, written: the token of each of these scores.
        tokens: pointer<u32>,
        /// Number of tokens.
        vocab: u32,
    }
}

parameters! {
    /// The parameters of [`SAMPLE_PICK`].
    pub struct SamplePickParameters {
        /// `[sequences, chunks]`, read: the best score of each chunk.
        scores: pointer<f32>,
        /// `[sequences, chunks]`, read: the token of each of these scores.
        tokens: pointer<u32>,
        /// `[sequences, 2]`, read: the bits of the maximum and the smallest sort key that is kept.
        selection: pointer<u32>,
        /// `[2, sequences]`, written: tokens, then statuses.
        sampled: pointer<u32>,
        /// Number of chunks.
        chunks: u32,
    }
}

/// Applies the repetition penalty and finds the maximum of each chunk.
pub const SAMPLE_ADJUST: Signature = Signature {
    image: "sample",
    parameters: SampleAdjustParameters::<()>::LIST,
    entries: &["sample_adjust"],
};

/// Finds the smallest logit that top-k and top-p keep.
pub const SAMPLE_THRESHOLD: Signature = Signature {
    image: SAMPLE_ADJUST.image,
    parameters: SampleThresholdParameters::<()>::LIST,
    entries: &["sample_threshold"],
};

/// Draws the best token of each chunk.
pub const SAMPLE_DRAW: Signature = Signature {
    image: SAMPLE_ADJUST.image,
    parameters: SampleDrawParameters::<()>::LIST,
    entries: &["sample_draw"],
};

/// Picks the best token of all chunks.
pub const SAMPLE_PICK: Signature = Signature {
    image: SAMPLE_ADJUST.image,
    parameters: SamplePickParameters::<()>::LIST,
    entries: &["sample_pick"],
};

parameters! {
    /// The parameters of [`MARK_SEEN_TOKENS`].
    pub struct MarkSeenTokensParameters {
        /// `n` tokens, read.
        tokens: pointer<u32>,
        /// `[vocab]` or `[n, vocab]` marks, partly written.
        seen: pointer<u32>,
        /// The number of tokens to mark, read; null for all.
        count: pointer<u32>,
        /// Number of tokens.
        n: u32,
        /// Marks of a row.
        vocab: u32,
        /// Marks between the rows of successive tokens: 0 if all tokens share a row, or `vocab`.
        row_stride: u32,
    }
}

/// Marks tokens as seen; one thread per token.
pub const MARK_SEEN_TOKENS: Signature = Signature {
    image: "mark_seen_tokens",
    parameters: MarkSeenTokensParameters::<()>::LIST,
    entries: &["mark_seen_tokens"],
};
