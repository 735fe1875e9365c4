//! LoRA: the products of low-rank adapters and their gradients.
//!
//! A launch has one to [`MAX_ADAPTERS`] adapters; pointers of absent ones are null.

pub mod dora;

use crate::Signature;
use crate::parameters::parameters;

/// The most adapters of a launch.
pub const MAX_ADAPTERS: usize = 3;

/// A matrix of an adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LoraMatrix {
    /// A, `[rank, inputs]`.
    A,
    /// B, `[outputs, rank]`.
    B,
}

impl LoraMatrix {
    /// Both.
    pub const ALL: &[Self] = &[Self::A, Self::B];
}

/// The image of every LoRA kernel.
pub const IMAGE: &str = "lora";

parameters! {
    /// The parameters of [`SHRINK`].
    pub struct ShrinkParameters {
        /// `rows × width` elements, read.
        x: pointer<f32>,
        /// The matrix of the first adapter, read.
        w0: pointer<f32>,
        /// The matrix of the second adapter, read.
        w1: pointer<f32>,
        /// The matrix of the third adapter, read.
        w2: pointer<f32>,
        /// `splits × rows × rank` results of the first adapter, written.
        out0: pointer<f32>,
        /// The results of the second adapter, written.
        out1: pointer<f32>,
        /// The results of the third adapter, written.
        out2: pointer<f32>,
        /// Number of rows.
        rows: u32,
        /// Elements in a row of x.
        width: u32,
        /// Rank of each adapter.
        rank: u32,
        /// Number of adapters.
        adapters: u32,
        /// Elements of the contraction per split.
        split_len: u32,
        /// The scale α.
        alpha: f32,
    }
}

/// Geometry of [`SHRINK`].
pub mod shrink {
    /// Rows of a block.
    pub const ROWS: u32 = 64;
    /// Elements of the contraction per stage.
    pub const TILE_K: u32 = 64;
    /// Threads of a block.
    pub const THREADS: u32 = 256;
    /// Ranks of a block of the narrow and of the wide entry of each matrix.
    pub const RANKS: &[u32] = &[16, 32];

    use super::LoraMatrix;

    /// The entry for `matrix` with a choice of [`RANKS`].
    pub const fn entry(matrix: LoraMatrix, wide: bool) -> &'static str {
        match (matrix, wide) {
            (LoraMatrix::A, false) => "lora_shrink16_a",
            (LoraMatrix::A, true) => "lora_shrink32_a",
            (LoraMatrix::B, false) => "lora_shrink16_b",
            (LoraMatrix::B, true) => "lora_shrink32_b",
        }
    }
}

/// LoRA shrink: from rows of x or dy to the ranks of adapters.
pub const SHRINK: Signature = Signature {
    image: IMAGE,
    parameters: ShrinkParameters::<()>::LIST,
    entries: &[
        shrink::entry(LoraMatrix::A, false),
        shrink::entry(LoraMatrix::A, true),
        shrink::entry(LoraMatrix::B, false),
        shrink::entry(LoraMatrix::B, true),
    ],
};

parameters! {
    /// The parameters of [`EXPAND`].
    pub struct ExpandParameters {
        /// `splits0 × rows × rank` elements of the first adapter, read.
        t0: pointer<f32>,
        /// The elements of the second adapter, read.
        t1: pointer<f32>,
        /// The elements of the third adapter, read.
        t2: pointer<f32>,
        /// The matrix of the first adapter, read.
        w0: pointer<f32>,
        /// The matrix of the second adapter, read.
        w1: pointer<f32>,
        /// The matrix of the third adapter, read.
        w2: pointer<f32>,
        /// `rows × rank` sums of the splits of t0, written, or null.
        t_sum0: pointer<f32>,
        /// The sums of the splits of t1, written, or null.
        t_sum1: pointer<f32>,
        /// The sums of the splits of t2, written, or null.
        t_sum2: pointer<f32>,
        /// `rows × width` elements, written or added to.
        y: pointer<f32>,
        /// Number of rows.
        rows: u32,
        /// Elements in a row of y.
        width: u32,
        /// Rank of each adapter.
        rank: u32,
        /// Number of adapters.
        adapters: u32,
        /// Splits of t0.
        splits0: u32,
        /// Splits of t1.
        splits1: u32,
        /// Splits of t2.
        splits2: u32,
        /// The scale α.
        alpha: f32,
        /// Whether y is added to.
        accumulate: bool,
    }
}

/// Geometry of [`EXPAND`].
pub mod expand {
    /// Rows of a block.
    pub const ROWS: u32 = 32;
    /// Columns of a block.
    pub const COLUMNS: u32 = 256;
    /// Threads of a block.
    pub const THREADS: u32 = 256;

    use super::LoraMatrix;

    /// The entry for `matrix`.
    pub const fn entry(matrix: LoraMatrix) -> &'static str {
        match matrix {
            LoraMatrix::A => "lora_expand_a",
            LoraMatrix::B => "lora_expand_b",
        }
    }
}

/// LoRA expand: from the ranks of adapters to rows of y or dx.
pub const EXPAND: Signature = Signature {
    image: IMAGE,
    parameters: ExpandParameters::<()>::LIST,
    entries: &[expand::entry(LoraMatrix::A), expand::entry(LoraMatrix::B)],
};

parameters! {
    /// The parameters of [`GRAD`].
    pub struct GradParameters {
        /// `rows × width` elements, read.
        x: pointer<f32>,
        /// `rows × rank` elements of the first adapter, read.
        t0: pointer<f32>,
        /// The elements of the second adapter, read.
        t1: pointer<f32>,
        /// The elements of the third adapter, read.
        t2: pointer<f32>,
        /// The gradient of the first adapter per split, written or added to.
        out0: pointer<f32>,
        /// The gradients of the second adapter, written or added to.
        out1: pointer<f32>,
        /// The gradients of the third adapter, written or added to.
        out2: pointer<f32>,
        /// Number of rows.
        rows: u32,
        /// Elements in a row of x.
        width: u32,
        /// Rank of each adapter.
        rank: u32,
        /// Rows per split.
        split_len: u32,
        /// The scale α.
        alpha: f32,
        /// Whether `out` is added to.
        accumulate: bool,
    }
}

/// Geometry of [`GRAD`].
pub mod grad {
    /// Columns of a block.
    pub const COLUMNS: u32 = 128;
    /// Ranks of a block.
    pub const RANKS: u32 = 16;
    /// Threads of a block.
    pub const THREADS: u32 = 128;
    /// Rows of a block in flight. Splits have a multiple of them.
    pub const ROWS_IN_FLIGHT: u32 = 32;

    use super::LoraMatrix;

    /// The entry for `matrix`.
    pub const fn entry(matrix: LoraMatrix) -> &'static str {
        match matrix {
            LoraMatrix::A => "lora_grad_a",
            LoraMatrix::B => "lora_grad_b",
        }
    }
}

/// The gradients of the matrices of adapters.
pub const GRAD: Signature = Signature {
    image: IMAGE,
    parameters: GradParameters::<()>::LIST,
    entries: &[grad::entry(LoraMatrix::A), grad::entry(LoraMatrix::B)],
};
