//! Skinny GEMM: products of few rows with bf16 weights.

use crate::parameters::parameters;
use crate::{Bf16, Signature};

/// The maximum number of rows of x: they are the N dimension of `mma.m16n8k16`, and outputs are M.
pub const SKINNY_MAX_ROWS: u32 = 8;
/// Outputs of a tile.
pub const SKINNY_OUTPUTS: u32 = 16;
/// Warps of a block.
pub const SKINNY_WARPS: u32 = 8;
/// Warps that share a tile by splitting K, in the order of the entries.
pub const SKINNY_SPLITS: [u32; 4] = [1, 2, 4, 8];

parameters! {
    /// The parameters of [`SKINNY`].
    pub struct SkinnyParameters {
        /// `rows × inputs` elements, read.
        x: pointer<f32>,
        /// `outputs × inputs` elements, read.
        w: pointer<Bf16>,
        /// `outputs` elements added to each row of y, read, or null.
        bias: pointer<f32>,
        /// `rows × outputs` elements, written.
        y: pointer<f32>,
        /// Number of rows, at most [`SKINNY_MAX_ROWS`].
        rows: u32,
        /// Length of the contraction, a multiple of 8.
        inputs: u32,
        /// Number of outputs.
        outputs: u32,
    }
}

/// `y = x·wᵀ + bias` for up to [`SKINNY_MAX_ROWS`] rows.
pub const SKINNY: Signature = Signature {
    image: "gemm_skinny",
    parameters: SkinnyParameters::<()>::LIST,
    entries: &[
        "gemm_skinny_split1",
        "gemm_skinny_split2",
        "gemm_skinny_split4",
        "gemm_skinny_split8",
    ],
};
