//! Matrix-vector products: up to [`MAX_LAYERS`] layers and up to as many LoRA matrices with one
//! input.
//!
//! A kernel has an entry for each form and each number of warps that share rows.

mod parameters;

pub use self::parameters::{
    GemvFlags, GemvLayer, GemvLora, GemvParameters, MAX_LAYERS, Scaled, Unscaled,
};
use crate::{DType, Signature};

/// Rows of a warp.
pub const WARP_ROWS: u32 = 4;
/// Warps of a block.
pub const BLOCK_WARPS: u32 = 8;
/// Minimum blocks per SM. Launches without a split have at most this many.
pub const MIN_BLOCKS_PER_SM: u32 = 3;
/// Numbers of warps that share the rows of a tile, in the order of the entries of a form.
pub const SPLITS: &[u32] = &[1, 2, 4, 8];

/// Elements of a vector of weights: 16 bytes, or 4 bytes of NF4 codes.
pub const fn vector_len(dtype: DType) -> u32 {
    match dtype {
        DType::F32 => 4,
        _ => 8,
    }
}

/// The prologue and epilogue of the products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GemvForm {
    /// Nothing.
    Plain,
    /// RMSNorm of x.
    Norm,
    /// RMSNorm of x, and SwiGLU of two products.
    Gated,
}

impl GemvForm {
    /// In the order of the entries of a kernel.
    pub const ALL: &[Self] = &[Self::Plain, Self::Norm, Self::Gated];

    /// Outputs of a tile of [`WARP_ROWS`] rows. A gated output takes two rows.
    pub const fn tile_outputs(self) -> u32 {
        match self {
            Self::Plain | Self::Norm => WARP_ROWS,
            Self::Gated => WARP_ROWS / 2,
        }
    }
}

/// A kernel for weights of one type.
#[derive(Clone, Copy, Debug)]
pub struct GemvKernel {
    /// The type of the weights.
    pub dtype: DType,
    /// Image, parameters and entries.
    pub signature: Signature,
}

impl GemvKernel {
    /// The entry with the given form; `split` is an index into [`SPLITS`].
    ///
    /// # Panics
    /// If `split` is out of range.
    pub const fn entry(&self, form: GemvForm, split: usize) -> &'static str {
        assert!(split < SPLITS.len(), "no such split");
        let first = match form {
            GemvForm::Plain => 0,
            GemvForm::Norm => SPLITS.len(),
            GemvForm::Gated => 2 * SPLITS.len(),
        };
        self.signature.entries[first + split]
    }
}

/// Defines a kernel and its entries.
macro_rules! gemv {
    ($(#[$doc:meta])* $constant:ident = $name:literal, $dtype:ident, $parameters:ident) => {
        $(#[$doc])*
        pub const $constant: GemvKernel = GemvKernel {
            dtype: DType::$dtype,
            signature: Signature {
                image: $name,
                parameters: $parameters::<()>::LIST,
                entries: &[
                    concat!($name, "_split1"),
                    concat!($name, "_split2"),
                    concat!($name, "_split4"),
                    concat!($name, "_split8"),
                    concat!($name, "_norm_split1"),
                    concat!($name, "_norm_split2"),
                    concat!($name, "_norm_split4"),
                    concat!($name, "_norm_split8"),
                    concat!($name, "_gated_split1"),
                    concat!($name, "_gated_split2"),
                    concat!($name, "_gated_split4"),
                    concat!($name, "_gated_split8"),
                ],
            },
        };
    };
}

gemv! {
    /// Weights in f32.
    GEMV = "gemv", F32, Unscaled
}
gemv! {
    /// Weights in bf16.
    GEMV_BF16 = "gemv_bf16", Bf16, Unscaled
}
gemv! {
    /// Weights in NF4.
    GEMV_NF4 = "gemv_nf4", Nf4, Scaled
}
