//! f32 matrices split into hi and lo terms of f16, and the parameters of their products.
//!
//! Row i of a split matrix is `scale[i] · (hi[i] + lo[i])`: `hi` is the row divided by its scale
//! and rounded to f16, and `lo` is the remainder rounded to f16. The scale is a power of two. It
//! brings the largest element of the row between 2^14 and 2^15 ([`SPLIT_LOG2_MAX`]), so splitting
//! an element loses at most 2^-23 of it or 2^-39 of the largest element of its row, whichever is
//! larger.
//!
//! Source: Ootomo and Yokota, "Recovering single precision accuracy from Tensor Cores while
//! surpassing the FP32 theoretical peak performance", arXiv 2203.03341, with a scale for each row.

use crate::parameters::parameters;
use crate::{F16, Signature};

/// The maximum number of terms of a split matrix: the hi plane, followed by the lo plane.
pub const SPLIT_MAX_TERMS: u32 = 2;

/// The exponent of the largest element of a row after scaling: it is between 2^14 and 2^15.
pub const SPLIT_LOG2_MAX: u32 = 14;

parameters! {
    /// The parameters of [`SPLIT`].
    pub struct SplitParameters {
        /// `rows × columns` elements, read.
        x: pointer<f32>,
        /// `columns` powers of two by which the columns are multiplied before the split, read, or
        /// null.
        column_scales: pointer<f32>,
        /// `term_count × rows × columns` elements, written: hi, then lo.
        terms: pointer<F16>,
        /// `rows` scales, written.
        scales: pointer<f32>,
        /// Number of rows.
        rows: u32,
        /// Elements of a row, a multiple of 8.
        columns: u32,
        /// Terms that are written: 2, or 1 for hi alone.
        term_count: u32,
    }
}

parameters! {
    /// The parameters of [`SPLIT_SWIGLU`]. Matrices have `rows × columns` elements.
    pub struct SplitSwiGluParameters {
        /// Read.
        gate: pointer<f32>,
        /// Read.
        up: pointer<f32>,
        /// `silu(gate) · up`, written, or null.
        out: pointer<f32>,
        /// `2 × rows × columns` elements, written: hi, then lo.
        terms: pointer<F16>,
        /// `rows` scales, written.
        scales: pointer<f32>,
        /// Number of rows.
        rows: u32,
        /// Elements of a row, a multiple of 8.
        columns: u32,
    }
}

parameters! {
    /// The parameters of [`SPLIT_SWIGLU_BACKWARD`]. Matrices have `rows × columns` elements.
    pub struct SplitSwiGluBackwardParameters {
        /// Read.
        gate: pointer<f32>,
        /// Read.
        up: pointer<f32>,
        /// The gradient of `silu(gate) · up`, read.
        grad_out: pointer<f32>,
        /// `columns` powers of two by which the columns of the gradient of gate are multiplied
        /// before the split, read, or null.
        gate_column_scales: pointer<f32>,
        /// The same for up.
        up_column_scales: pointer<f32>,
        /// Written, or null.
        grad_gate: pointer<f32>,
        /// Written, or null.
        grad_up: pointer<f32>,
        /// `2 × rows × columns` elements, written: hi, then lo.
        gate_terms: pointer<F16>,
        /// The same for up.
        up_terms: pointer<F16>,
        /// `rows` scales, written.
        gate_scales: pointer<f32>,
        /// The same for up.
        up_scales: pointer<f32>,
        /// Number of rows.
        rows: u32,
        /// Elements of a row, a multiple of 8.
        columns: u32,
    }
}

parameters! {
    /// The scales of split operands; they follow [`GemmTensorMaps`](super::GemmTensorMaps).
    pub struct SplitScaleParameters {
        /// `m` scales of the rows of a.
        a_scales: pointer<f32>,
        /// `n` scales of the columns of b in the layout [`Nt`](super::Layout::Nt). Null in
        /// [`Nn`](super::Layout::Nn): there the scales of b run along the contraction, and a was
        /// split with them as column scales.
        b_scales: pointer<f32>,
        /// Terms of b: 2, or 1 if lo is 0. a has 2.
        b_term_count: u32,
    }
}

/// The entries of a kernel that splits rows, one row per block.
#[derive(Clone, Copy, Debug)]
pub struct SplitEntries {
    /// The entry for rows of any width, which reads them twice.
    pub any_width: &'static str,
    /// The entries that keep a row in registers, each with its number of groups of eight elements
    /// per thread.
    pub in_registers: [(u32, &'static str); 3],
}

impl SplitEntries {
    /// The maximum block size: rows of up to 9216 elements have two groups per thread.
    pub const MAX_THREADS: u32 = 576;

    const fn list(&self) -> [&'static str; 4] {
        let [(_, one), (_, two), (_, four)] = self.in_registers;
        [self.any_width, one, two, four]
    }
}

/// The entries of [`SPLIT`].
pub const SPLIT_ENTRIES: SplitEntries = SplitEntries {
    any_width: "split_f16",
    in_registers: [(1, "split_f16_1"), (2, "split_f16_2"), (4, "split_f16_4")],
};

/// The entries of [`SPLIT_SWIGLU`].
pub const SPLIT_SWIGLU_ENTRIES: SplitEntries = SplitEntries {
    any_width: "split_f16_swiglu",
    in_registers: [(1, "split_f16_swiglu_1"), (2, "split_f16_swiglu_2"), (4, "split_f16_swiglu_4")],
};

/// The entries of [`SPLIT_SWIGLU_BACKWARD`].
pub const SPLIT_SWIGLU_BACKWARD_ENTRIES: SplitEntries = SplitEntries {
    any_width: "split_f16_swiglu_backward",
    in_registers: [
        (1, "split_f16_swiglu_backward_1"),
        (2, "split_f16_swiglu_backward_2"),
        (4, "split_f16_swiglu_backward_4"),
    ],
};

/// Splits the rows of a matrix.
pub const SPLIT: Signature = Signature {
    image: "split_f16",
    parameters: SplitParameters::<()>::LIST,
    entries: &SPLIT_ENTRIES.list(),
};

/// Computes SwiGLU and splits its rows.
pub const SPLIT_SWIGLU: Signature = Signature {
    image: "split_f16_swiglu",
    parameters: SplitSwiGluParameters::<()>::LIST,
    entries: &SPLIT_SWIGLU_ENTRIES.list(),
};

/// Computes the gradients of gate and up through SwiGLU and splits their rows.
pub const SPLIT_SWIGLU_BACKWARD: Signature = Signature {
    image: "split_f16_swiglu_backward",
    parameters: SplitSwiGluBackwardParameters::<()>::LIST,
    entries: &SPLIT_SWIGLU_BACKWARD_ENTRIES.list(),
};
