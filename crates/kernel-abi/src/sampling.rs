//! Sampling of the next token from its logits.

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
        /// `vocab` logits, read.
        logits: pointer<f32>,
        /// `vocab` marks, read: nonzero for tokens with a penalty.
        seen: pointer<u32>,
        /// The words of [`word`], read.
        sampling: pointer<u32>,
        /// `vocab` logits after the penalty, written.
        adjusted: pointer<f32>,
        /// The maximum of each chunk, written.
        maxima: pointer<f32>,
        /// Number of tokens.
        vocab: u32,
    }
}

parameters! {
    /// The parameters of [`SAMPLE_THRESHOLD`].
    pub struct SampleThresholdParameters {
        /// `vocab` logits after the penalty, read.
        adjusted: pointer<f32>,
        /// The maximum of each chunk, read.
        maxima: pointer<f32>,
        /// The words of [`word`], read.
        sampling: pointer<u32>,
        /// The bits of the maximum and the smallest sort key that is kept, written.
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
        /// `vocab` logits after the penalty, read.
        adjusted: pointer<f32>,
        /// The bits of the maximum and the smallest sort key that is kept, read.
        selection: pointer<u32>,
        /// The words of [`word`], read.
        sampling: pointer<u32>,
        /// The best score of each chunk, written.
        scores: pointer<f32>,
        /// The token of each of these scores, written.
        tokens: pointer<u32>,
        /// Number of tokens.
        vocab: u32,
    }
}

parameters! {
    /// The parameters of [`SAMPLE_PICK`].
    pub struct SamplePickParameters {
        /// The best score of each chunk, read.
        scores: pointer<f32>,
        /// The token of each of these scores, read.
        tokens: pointer<u32>,
        /// The bits of the maximum and the smallest sort key that is kept, read.
        selection: pointer<u32>,
        /// The token and a status, written.
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
        /// `vocab` marks, partly written.
        seen: pointer<u32>,
        /// The number of tokens to mark, read; null for all.
        count: pointer<u32>,
        /// Number of tokens.
        n: u32,
        /// Number of marks.
        vocab: u32,
    }
}

/// Marks tokens as seen; one thread per token.
pub const MARK_SEEN_TOKENS: Signature = Signature {
    image: "mark_seen_tokens",
    parameters: MarkSeenTokensParameters::<()>::LIST,
    entries: &["mark_seen_tokens"],
};
