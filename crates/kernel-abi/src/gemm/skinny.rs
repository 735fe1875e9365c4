//! Skinny GEMM: products of few rows of x with up to three bf16 weights.

use crate::parameters::parameters;
use crate::{Any, Bf16, Signature};

/// The maximum number of rows of x: they are the N dimension of `mma.m16n8k16`, and outputs are M.
pub const SKINNY_MAX_ROWS: u32 = 8;
/// The maximum number of weights of a launch.
pub const SKINNY_MAX_LAYERS: usize = 3;
/// Rows of w of a tile. A tile of [`SkinnyForm::SwiGlu`] has half of each weight.
pub const SKINNY_TILE_ROWS: u32 = 16;
/// Warps of a block, which split K of its tiles, for many and for few tiles.
pub const SKINNY_WARPS: &[u32] = &[8, 16];

/// The dtype of x and the epilogue of the products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SkinnyForm {
    /// x is f32.
    F32,
    /// x is bf16.
    Bf16,
    /// x is bf16; SwiGLU of two products, whose result is bf16.
    SwiGlu,
}

impl SkinnyForm {
    /// In the order of the entries of [`SKINNY`].
    pub const ALL: &[Self] = &[Self::F32, Self::Bf16, Self::SwiGlu];

    /// The entry.
    pub const fn entry(self) -> &'static str {
        SKINNY.entries[self as usize]
    }

    /// Outputs of a tile.
    pub const fn tile_outputs(self) -> u32 {
        match self {
            Self::SwiGlu => SKINNY_TILE_ROWS / 2,
            _ => SKINNY_TILE_ROWS,
        }
    }
}

parameters! {
    /// The parameters of [`SKINNY`]. Pointers of absent layers are null, and their outputs 0.
    pub struct SkinnyParameters {
        /// `rows × inputs` elements, read.
        x: pointer<Any>,
        /// `outputs0 × inputs` elements, read.
        w0: pointer<Bf16>,
        /// `outputs0` elements added to each row of y0, read, or null.
        bias0: pointer<f32>,
        /// `rows × outputs0` elements, written or accumulated: f32, or bf16 with SwiGLU.
        y0: pointer<Any>,
        /// `outputs1 × inputs` elements, read.
        w1: pointer<Bf16>,
        /// As bias0.
        bias1: pointer<f32>,
        /// As y0; null with SwiGLU.
        y1: pointer<Any>,
        /// `outputs2 × inputs` elements, read.
        w2: pointer<Bf16>,
        /// As bias0.
        bias2: pointer<f32>,
        /// As y0.
        y2: pointer<Any>,
        /// Weights of the next launch, which are prefetched, or null.
        prefetch: pointer<Any>,
        /// Bytes to prefetch.
        prefetch_bytes: u32,
        /// Number of rows, at most [`SKINNY_MAX_ROWS`].
        rows: u32,
        /// Length of the contraction, a multiple of 8.
        inputs: u32,
        /// Rows of w0.
        outputs0: u32,
        /// Rows of w1.
        outputs1: u32,
        /// Rows of w2.
        outputs2: u32,
        /// Whether the result is added to y instead of replacing it.
        accumulate: bool,
    }
}

/// `y = x·wᵀ + bias` for up to [`SKINNY_MAX_ROWS`] rows.
pub const SKINNY: Signature = Signature {
    image: "gemm_skinny",
    parameters: SkinnyParameters::<()>::LIST,
    entries: &["gemm_skinny", "gemm_skinny_bf16", "gemm_skinny_swiglu"],
};
