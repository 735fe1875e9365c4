//! Matrices in f32 split into two parts of f16, and the parameters of their products.
//!
//! Row i of a split matrix is `scale[i] · (high[i] + low[i])`: `high` is the row divided by its
//! scale and rounded to f16, `low` the rounded rest. The scale is the power of two by which the
//! largest element of the row falls between 2^14 and 2^15, so a split loses at most 2^-23 of an
//! element and 2^-39 of the largest element of its row.
//!
//! Source: Ootomo and Yokota, "Recovering single precision accuracy from Tensor Cores while
//! surpassing the FP32 theoretical peak performance", arXiv 2203.03341, with a scale for each row.

use crate::parameters::parameters;
use crate::{F16, Signature};

/// The most parts of a split matrix: high and low, one plane after the other.
pub const SPLIT_PARTS: u32 = 2;

parameters! {
    /// The parameters of [`SPLIT`].
    pub struct SplitParameters {
        /// `rows × columns` elements, read.
        x: pointer<f32>,
        /// `columns` powers of two by which columns are multiplied first, read, or null.
        factors: pointer<f32>,
        /// `count × rows × columns` elements, written: high, then low.
        parts: pointer<F16>,
        /// `rows` scales, written.
        scales: pointer<f32>,
        /// Number of rows.
        rows: u32,
        /// Elements of a row, a multiple of 8.
        columns: u32,
        /// Parts that are written: 2, or 1 for high alone.
        count: u32,
    }
}

parameters! {
    /// The scales of split operands; they follow [`GemmTensorMaps`](super::GemmTensorMaps).
    pub struct SplitScaleParameters {
        /// `m` scales of the rows of a.
        a_scales: pointer<f32>,
        /// `n` scales of the columns of b in the layout [`Nt`](super::Layout::Nt). In
        /// [`Nn`](super::Layout::Nn), the scales of b are along the contraction, and a was split
        /// with them as factors; then this is null.
        b_scales: pointer<f32>,
        /// Parts of b: 2, or 1 if low is 0. a has 2.
        b_parts: u32,
    }
}

/// The entry of [`SPLIT`] for rows of any width, which reads them twice.
pub const SPLIT_ANY_WIDTH: &str = "split_f16";

/// The entries of [`SPLIT`] that keep a row in registers, each with its groups of eight elements
/// per thread.
pub const SPLIT_IN_REGISTERS: [(u32, &str); 3] =
    [(1, "split_f16_1"), (2, "split_f16_2"), (4, "split_f16_4")];

/// Splits the rows of a matrix, a row per block.
pub const SPLIT: Signature = Signature {
    image: "split_f16",
    parameters: SplitParameters::<()>::LIST,
    entries: &[
        SPLIT_ANY_WIDTH,
        SPLIT_IN_REGISTERS[0].1,
        SPLIT_IN_REGISTERS[1].1,
        SPLIT_IN_REGISTERS[2].1,
    ],
};
/// The most threads of a block of [`SPLIT`].
pub const SPLIT_MAX_THREADS: u32 = 512;
