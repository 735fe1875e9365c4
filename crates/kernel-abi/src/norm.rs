//! RMSNorm, its backward pass, and column sums.

use crate::parameters::parameters;
use crate::{Bf16, F16, Signature};

parameters! {
    /// The parameters of [`RMS_NORM`].
    pub struct RmsNormParameters {
        /// `rows × width` elements, read.
        x: pointer<f32>,
        /// `rows × width` elements in f32, read and added to x, or null.
        residual: pointer<f32>,
        /// The same in bf16, or null.
        residual_bf16: pointer<Bf16>,
        /// `rows × width` sums of x and the residual, written if there is a residual.
        sum: pointer<f32>,
        /// `width` gains, read.
        gamma: pointer<f32>,
        /// `rows × width` results in f32, written, or null.
        y: pointer<f32>,
        /// `rows × width` results in bf16, written, or null.
        y_bf16: pointer<Bf16>,
        /// `rows` reciprocals of the root mean square, written.
        rstd: pointer<f32>,
        /// Elements in a row.
        width: u32,
        /// Added to the mean square.
        eps: f32,
    }
}

parameters! {
    /// The parameters of [`RMS_NORM_BACKWARD`].
    pub struct RmsNormBackwardParameters {
        /// `rows × width` elements, the input of the forward pass, read.
        x: pointer<f32>,
        /// `width` gains, read.
        gamma: pointer<f32>,
        /// `rows` values of `rstd` of the forward pass, read.
        rstd: pointer<f32>,
        /// `rows × width` gradients in f32, read, or null.
        grad_out: pointer<f32>,
        /// The same in bf16, or null.
        grad_out_bf16: pointer<Bf16>,
        /// A second gradient in f32, added to the first, or null.
        grad_out_2: pointer<f32>,
        /// The same in bf16, or null.
        grad_out_2_bf16: pointer<Bf16>,
        /// A third gradient in f32, added to the sum of the first two, or null.
        grad_out_3: pointer<f32>,
        /// The same in bf16, or null.
        grad_out_3_bf16: pointer<Bf16>,
        /// `rows × width` gradients in f32, written or added to, or null.
        grad_input: pointer<f32>,
        /// `rows × width` gradients in bf16, written, or null.
        grad_input_bf16: pointer<Bf16>,
        /// `blocks × width` partial sums, written, or null.
        gamma_partials: pointer<f32>,
        /// Number of rows.
        rows: u32,
        /// Elements in a row.
        width: u32,
        /// Rows of a block.
        rows_per_block: u32,
        /// Whether `grad_input` is added to.
        accumulate: bool,
    }
}

/// The maximum block size of RMSNorm and its backward pass.
pub const MAX_THREADS: u32 = 512;

/// The entry of [`RMS_NORM`] for rows of any width and alignment.
pub const RMS_NORM_ANY_WIDTH: &str = "rms_norm";

/// The entries of [`RMS_NORM`] that keep a row in registers, each with its number of vec4s per
/// thread.
pub const RMS_NORM_IN_REGISTERS: &[(u32, &str)] =
    &[(1, "rms_norm_1"), (2, "rms_norm_2"), (4, "rms_norm_4")];

/// RMSNorm with an optional residual add.
pub const RMS_NORM: Signature = Signature {
    image: "rms_norm",
    parameters: RmsNormParameters::<()>::LIST,
    entries: &[
        RMS_NORM_ANY_WIDTH,
        RMS_NORM_IN_REGISTERS[0].1,
        RMS_NORM_IN_REGISTERS[1].1,
        RMS_NORM_IN_REGISTERS[2].1,
    ],
};

/// The entry of [`RMS_NORM_BACKWARD`] for rows of any width and alignment.
pub const RMS_NORM_BACKWARD_ANY_WIDTH: &str = "rms_norm_backward";

/// The entries of [`RMS_NORM_BACKWARD`] that keep a row in registers, each with its number of vec4s
/// per thread.
pub const RMS_NORM_BACKWARD_IN_REGISTERS: &[(u32, &str)] =
    &[(1, "rms_norm_backward_1"), (2, "rms_norm_backward_2")];

/// The backward pass of RMSNorm.
pub const RMS_NORM_BACKWARD: Signature = Signature {
    image: "rms_norm_backward",
    parameters: RmsNormBackwardParameters::<()>::LIST,
    entries: &[
        RMS_NORM_BACKWARD_ANY_WIDTH,
        RMS_NORM_BACKWARD_IN_REGISTERS[0].1,
        RMS_NORM_BACKWARD_IN_REGISTERS[1].1,
    ],
};

parameters! {
    /// The parameters of [`SPLIT_RMS_NORM`].
    pub struct SplitRmsNormParameters {
        /// `rows × width` elements, read.
        x: pointer<f32>,
        /// `rows × width` elements, read and added to x, or null.
        residual: pointer<f32>,
        /// `rows × width` sums of x and the residual, written if there is a residual.
        sum: pointer<f32>,
        /// `width` gains, read.
        gamma: pointer<f32>,
        /// `rows × width` results, written, or null.
        y: pointer<f32>,
        /// `2 × rows × width` elements, written: hi, then lo.
        terms: pointer<F16>,
        /// `rows` scales, written.
        scales: pointer<f32>,
        /// `rows` reciprocals of the root mean square, written.
        rstd: pointer<f32>,
        /// Number of rows.
        rows: u32,
        /// Elements in a row, a multiple of 8.
        width: u32,
        /// Added to the mean square.
        eps: f32,
    }
}

/// The entry of [`SPLIT_RMS_NORM`] for rows of any width.
pub const SPLIT_RMS_NORM_ANY_WIDTH: &str = "split_f16_rms_norm";

/// The entries of [`SPLIT_RMS_NORM`] that keep a row in registers, each with its number of vec4s
/// per thread.
pub const SPLIT_RMS_NORM_IN_REGISTERS: &[(u32, &str)] =
    &[(1, "split_f16_rms_norm_1"), (2, "split_f16_rms_norm_2"), (4, "split_f16_rms_norm_4")];

/// RMSNorm with an optional residual add, whose rows are split into terms of f16.
pub const SPLIT_RMS_NORM: Signature = Signature {
    image: "split_f16_rms_norm",
    parameters: SplitRmsNormParameters::<()>::LIST,
    entries: &[
        SPLIT_RMS_NORM_ANY_WIDTH,
        SPLIT_RMS_NORM_IN_REGISTERS[0].1,
        SPLIT_RMS_NORM_IN_REGISTERS[1].1,
        SPLIT_RMS_NORM_IN_REGISTERS[2].1,
    ],
};

parameters! {
    /// The parameters of [`SPLIT_RMS_NORM_BACKWARD`].
    pub struct SplitRmsNormBackwardParameters {
        /// `rows × width` elements, the input of the forward pass, read.
        x: pointer<f32>,
        /// `width` gains, read.
        gamma: pointer<f32>,
        /// `rows` values of `rstd` of the forward pass, read.
        rstd: pointer<f32>,
        /// `rows × width` gradients, read.
        grad_out: pointer<f32>,
        /// A second gradient, added to the first, or null.
        grad_out_2: pointer<f32>,
        /// A third gradient, added to the sum of the first two, or null.
        grad_out_3: pointer<f32>,
        /// `rows × width` gradients, written or added to.
        grad_input: pointer<f32>,
        /// `width` powers of two by which the columns of `grad_input` are multiplied before the
        /// split, read, or null.
        column_scales: pointer<f32>,
        /// `2 × rows × width` elements of the split `grad_input`, written: hi, then lo.
        terms: pointer<F16>,
        /// `rows` scales, written.
        scales: pointer<f32>,
        /// `blocks × width` partial sums, written, or null.
        gamma_partials: pointer<f32>,
        /// Number of rows.
        rows: u32,
        /// Elements in a row, a multiple of 8.
        width: u32,
        /// Rows of a block.
        rows_per_block: u32,
        /// Whether `grad_input` is added to.
        accumulate: bool,
    }
}

/// The entry of [`SPLIT_RMS_NORM_BACKWARD`] for rows of any width.
pub const SPLIT_RMS_NORM_BACKWARD_ANY_WIDTH: &str = "split_f16_rms_norm_backward";

/// The entries of [`SPLIT_RMS_NORM_BACKWARD`] that keep a row in registers, each with its number of
/// vec4s per thread.
pub const SPLIT_RMS_NORM_BACKWARD_IN_REGISTERS: &[(u32, &str)] =
    &[(1, "split_f16_rms_norm_backward_1"), (2, "split_f16_rms_norm_backward_2")];

/// The backward pass of RMSNorm, whose gradient is split into terms of f16.
pub const SPLIT_RMS_NORM_BACKWARD: Signature = Signature {
    image: "split_f16_rms_norm_backward",
    parameters: SplitRmsNormBackwardParameters::<()>::LIST,
    entries: &[
        SPLIT_RMS_NORM_BACKWARD_ANY_WIDTH,
        SPLIT_RMS_NORM_BACKWARD_IN_REGISTERS[0].1,
        SPLIT_RMS_NORM_BACKWARD_IN_REGISTERS[1].1,
    ],
};

parameters! {
    /// The parameters of [`COLUMN_SUM`].
    pub struct ColumnSumParameters {
        /// `rows × columns` elements, read.
        x: pointer<f32>,
        /// `columns` sums, written or added to.
        out: pointer<f32>,
        /// Number of rows.
        rows: u32,
        /// Number of columns.
        columns: u32,
        /// Whether `out` is added to.
        accumulate: bool,
    }
}

/// Columns of a block of [`COLUMN_SUM`].
pub const COLUMN_SUM_COLUMNS: u32 = 32;
/// Threads that share a column of [`COLUMN_SUM`].
pub const COLUMN_SUM_LANES: u32 = 16;

/// The sum of each column.
pub const COLUMN_SUM: Signature = Signature {
    image: "column_sum",
    parameters: ColumnSumParameters::<()>::LIST,
    entries: &["column_sum"],
};
