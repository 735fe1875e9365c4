//! Softmax of unfused attention, forward and backward.

use crate::parameters::parameters;
use crate::{RowKernel, Signature};

parameters! {
    /// The parameters of [`SOFTMAX`].
    pub struct SoftmaxParameters {
        /// `rows × width` elements, read.
        input: pointer<f32>,
        /// `rows × width` elements, written; it may be the input.
        output: pointer<f32>,
        /// The position of the first of `queries` rows, read; null for 0.
        start: pointer<u32>,
        /// `[rows ÷ rows_per_sequence, queries]`: the first column that each query keeps, read, or
        /// null.
        first_columns: pointer<u32>,
        /// Number of rows.
        rows: u32,
        /// Elements in a row.
        width: u32,
        /// Number of consecutive rows with consecutive positions.
        queries: u32,
        /// Rows that share a row of `first_columns`.
        rows_per_sequence: u32,
        /// The most columns that a causal row keeps.
        window: u32,
        /// Whether a row keeps only the columns up to its position.
        causal: bool,
    }
}

/// Softmax of each row.
pub const SOFTMAX: RowKernel = RowKernel {
    signature: Signature {
        image: "softmax",
        parameters: SoftmaxParameters::<()>::LIST,
        entries: &["softmax_warp_per_row", "softmax_block_per_row"],
    },
    warps: 4,
    block_threads: 256,
};

parameters! {
    /// The parameters of [`SOFTMAX_BACKWARD`].
    pub struct SoftmaxBackwardParameters {
        /// `rows × width` probabilities, read.
        probs: pointer<f32>,
        /// `rows × width` gradients, read.
        grad_out: pointer<f32>,
        /// `rows × width` gradients, written.
        grad_input: pointer<f32>,
        /// `[rows ÷ rows_per_sequence, width]`: the first column of each query, read, or null.
        first_columns: pointer<u32>,
        /// Number of rows.
        rows: u32,
        /// Elements in a row.
        width: u32,
        /// Rows that share a row of `first_columns`.
        rows_per_sequence: u32,
        /// Whether row r has only the columns up to r mod width.
        causal: bool,
    }
}

/// The gradient of softmax.
pub const SOFTMAX_BACKWARD: RowKernel = RowKernel {
    signature: Signature {
        image: "softmax_backward",
        parameters: SoftmaxBackwardParameters::<()>::LIST,
        entries: &["softmax_backward_warp_per_row", "softmax_backward_block_per_row"],
    },
    warps: 4,
    block_threads: 256,
};
