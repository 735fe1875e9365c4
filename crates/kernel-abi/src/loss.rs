//! Cross-entropy, the mean loss, and the DPO loss.

use crate::parameters::parameters;
use crate::{Any, Bf16, F16, RowKernel, Signature};

parameters! {
    /// The parameters of [`CROSS_ENTROPY`] and its variants.
    pub struct CrossEntropyParameters {
        /// `rows × vocab` logits, read, and written if `in_place` is set.
        logits: pointer<Any>,
        /// `rows` tokens or [`IGNORED_TARGET`], read.
        targets: pointer<u32>,
        /// `rows` losses, written.
        losses: pointer<f32>,
        /// A permutation, read: the index of the target and of the loss of each row of logits. Null
        /// if it is the index of the row.
        order: pointer<u32>,
        /// The number of rows of logits whose gradient is written, read, or null for all.
        row_limit: pointer<u32>,
        /// `rows × vocab` gradients in f32, written, or null.
        grad_logits: pointer<f32>,
        /// `rows × vocab` gradients in bf16, written, or null.
        grad_logits_bf16: pointer<Bf16>,
        /// Whether the gradient overwrites the logits.
        in_place: bool,
        /// The number of targets that are not ignored, read.
        counted: pointer<u32>,
        /// Number of rows.
        rows: u32,
        /// Logits of a row.
        vocab: u32,
        /// The cap of the logits, which kernels without a cap ignore.
        softcap: f32,
    }
}

/// The target of a row without a loss, for example padding or a prompt: `ignore_index` of PyTorch
/// (−100 there).
pub const IGNORED_TARGET: u32 = u32::MAX;

/// Cross-entropy of logits in f32, and its gradient.
pub const CROSS_ENTROPY: RowKernel = RowKernel {
    signature: Signature {
        image: "cross_entropy",
        parameters: CrossEntropyParameters::<()>::LIST,
        entries: &["cross_entropy_warp_per_row", "cross_entropy_block_per_row"],
    },
    warps: 4,
    block_threads: 512,
};

/// The same of logits in bf16.
pub const CROSS_ENTROPY_BF16: RowKernel = RowKernel {
    signature: Signature {
        image: "cross_entropy_bf16",
        entries: &["cross_entropy_bf16_warp_per_row", "cross_entropy_bf16_block_per_row"],
        ..CROSS_ENTROPY.signature
    },
    ..CROSS_ENTROPY
};

/// Cross-entropy of logits in f32 with a cap, and its gradient.
pub const CROSS_ENTROPY_SOFTCAP: RowKernel = RowKernel {
    signature: Signature {
        image: "cross_entropy_softcap",
        entries: &["cross_entropy_softcap_warp_per_row", "cross_entropy_softcap_block_per_row"],
        ..CROSS_ENTROPY.signature
    },
    ..CROSS_ENTROPY
};

/// The same of logits in bf16.
pub const CROSS_ENTROPY_SOFTCAP_BF16: RowKernel = RowKernel {
    signature: Signature {
        image: "cross_entropy_softcap_bf16",
        entries: &[
            "cross_entropy_softcap_bf16_warp_per_row",
            "cross_entropy_softcap_bf16_block_per_row",
        ],
        ..CROSS_ENTROPY.signature
    },
    ..CROSS_ENTROPY
};

parameters! {
    /// The parameters of [`SPLIT_CROSS_ENTROPY`].
    pub struct SplitCrossEntropyParameters {
        /// `rows × vocab` logits, read.
        logits: pointer<f32>,
        /// `rows` tokens or [`IGNORED_TARGET`], read.
        targets: pointer<u32>,
        /// `rows` losses, written.
        losses: pointer<f32>,
        /// A permutation, read: the index of the target and of the loss of each row of logits. Null
        /// if it is the index of the row.
        order: pointer<u32>,
        /// The number of rows of logits whose gradient is written, read, or null for all.
        row_limit: pointer<u32>,
        /// `vocab` powers of two by which the columns of the gradient are multiplied before the
        /// split, read, or null.
        column_scales: pointer<f32>,
        /// `2 × rows × vocab` elements of the gradient, written: hi, then lo.
        terms: pointer<F16>,
        /// `rows` scales, written.
        scales: pointer<f32>,
        /// The number of targets that are not ignored, read.
        counted: pointer<u32>,
        /// Number of rows.
        rows: u32,
        /// Logits of a row, a multiple of 8.
        vocab: u32,
    }
}

/// Cross-entropy of logits in f32, and its gradient, split into terms of f16.
pub const SPLIT_CROSS_ENTROPY: RowKernel = RowKernel {
    signature: Signature {
        image: "split_f16_cross_entropy",
        parameters: SplitCrossEntropyParameters::<()>::LIST,
        entries: &["split_f16_cross_entropy_warp_per_row", "split_f16_cross_entropy_block_per_row"],
    },
    ..CROSS_ENTROPY
};

parameters! {
    /// The parameters of [`MEAN`].
    pub struct MeanParameters {
        /// `n` values, read.
        x: pointer<f32>,
        /// The number of values that are not ignored, read.
        counted: pointer<u32>,
        /// The mean, written.
        out: pointer<f32>,
        /// Number of values.
        n: u32,
    }
}

/// Threads of the one block of [`MEAN`].
pub const MEAN_THREADS: u32 = 256;

/// The mean of the values that are not ignored.
pub const MEAN: Signature =
    Signature { image: "mean", parameters: MeanParameters::<()>::LIST, entries: &["mean"] };

parameters! {
    /// The parameters of [`LOG_RATIOS`].
    pub struct LogRatiosParameters {
        /// `sequences × seq` losses of the trained model, read.
        policy: pointer<f32>,
        /// `sequences × seq` losses of the reference, read.
        reference: pointer<f32>,
        /// `sequences` sums, written.
        ratios: pointer<f64>,
        /// Losses of a sequence.
        seq: u32,
    }
}

/// Threads of a block of [`LOG_RATIOS`]; one block per sequence.
pub const LOG_RATIOS_THREADS: u32 = 256;

/// The log-ratio of each sequence: its log-probability minus its log-probability under the
/// reference.
pub const LOG_RATIOS: Signature = Signature {
    image: "log_ratios",
    parameters: LogRatiosParameters::<()>::LIST,
    entries: &["log_ratios"],
};

parameters! {
    /// The parameters of [`PREFERENCE`].
    pub struct PreferenceParameters {
        /// `2 × pairs` log-ratios, alternating between chosen and rejected, read.
        ratios: pointer<f64>,
        /// `pairs` losses, written.
        losses: pointer<f32>,
        /// `pairs` rewards of chosen sequences, written.
        chosen: pointer<f32>,
        /// `pairs` rewards of rejected sequences, written.
        rejected: pointer<f32>,
        /// `pairs`: 1 if the chosen reward is larger, else 0, written.
        correct: pointer<f32>,
        /// `2 × pairs` derivatives of the loss with respect to the negative log-probabilities,
        /// written.
        weights: pointer<f32>,
        /// Number of pairs.
        pairs: u32,
        /// β.
        beta: f32,
        /// The probability that a label is wrong.
        label_smoothing: f32,
    }
}

/// Threads of a block of [`PREFERENCE`]; one thread per pair.
pub const PREFERENCE_THREADS: u32 = 128;

/// The DPO loss of pairs and its derivatives.
pub const PREFERENCE: Signature = Signature {
    image: "preference",
    parameters: PreferenceParameters::<()>::LIST,
    entries: &["preference"],
};

parameters! {
    /// The parameters of [`SCALE_ROWS`].
    pub struct ScaleRowsParameters {
        /// `rows × width`, read.
        x: pointer<f32>,
        /// A factor for every `rows_of_factor` rows, read.
        scales: pointer<f32>,
        /// `rows × width`, written.
        out: pointer<f32>,
        /// Elements of a row.
        width: u32,
        /// Rows that share a factor.
        rows_of_factor: u32,
    }
}

/// Threads of a block of [`SCALE_ROWS`]; one block per row.
pub const SCALE_ROWS_THREADS: u32 = 256;

/// Multiplies each row by a factor.
pub const SCALE_ROWS: Signature = Signature {
    image: "scale_rows",
    parameters: ScaleRowsParameters::<()>::LIST,
    entries: &["scale_rows"],
};

parameters! {
    /// The parameters of [`GATHER_ROWS`] and [`SCATTER_ROWS`].
    pub struct RowOrderParameters {
        /// `rows × row_bytes` bytes, read.
        x: pointer<Any>,
        /// `rows` indices of rows, read.
        order: pointer<u32>,
        /// The number of rows that are copied, read.
        row_limit: pointer<u32>,
        /// `rows × row_bytes` bytes, written.
        out: pointer<Any>,
        /// Number of rows.
        rows: u32,
        /// Bytes of a row, a multiple of 2.
        row_bytes: u32,
    }
}

/// Copies the first rows of an order to the start, and fills the others with zeros.
pub const GATHER_ROWS: Signature = Signature {
    image: "row_order",
    parameters: RowOrderParameters::<()>::LIST,
    entries: &["gather_rows"],
};

/// Copies the first rows back to their places in an order, and fills the others with zeros.
pub const SCATTER_ROWS: Signature = Signature { entries: &["scatter_rows"], ..GATHER_ROWS };
