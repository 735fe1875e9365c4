//! NF4, the 4-bit data type of QLoRA, in the layout of bitsandbytes.
//!
//! The flattened matrix is divided into blocks of [`BLOCK`] elements, each with a scale. A code is
//! an index into [`CODE_VALUES`]. A byte holds two codes, the first one in its high nibble. With
//! double quantization, a scale is a byte, an index into a table of [`BYTE_VALUES`] values, and
//! [`NESTED_BLOCK`] bytes share an f32 scale.
//!
//! Source: Dettmers et al., "QLoRA", arXiv 2305.14314, appendix E.

use crate::parameters::parameters;
use crate::{Any, Bf16, ParameterTypes, Signature};

/// The pointers to the scales of a matrix.
pub struct Nf4Scales<T: ParameterTypes> {
    /// One scale per block: f32, or u8 if scales are quantized.
    pub absmax: T::Pointer<Any>,
    /// One f32 scale per [`NESTED_BLOCK`] quantized scales, or null.
    pub nested: T::Pointer<f32>,
    /// The [`BYTE_VALUES`] values of the quantized scales, or null.
    pub map: T::Pointer<f32>,
    /// One f32 that is added to each quantized scale, or null.
    pub offset: T::Pointer<f32>,
}

parameters! {
    /// The parameters of [`NF4_DEQUANTIZE`].
    pub struct DequantizeParameters {
        /// The codes, eight per word, read.
        codes: pointer<Any>,
        /// One scale per block: f32, or u8 if scales are quantized.
        absmax: pointer<Any>,
        /// One f32 scale per 256 quantized scales, or null.
        nested: pointer<f32>,
        /// The 256 values of the quantized scales, or null.
        map: pointer<f32>,
        /// One f32 that is added to each quantized scale, or null.
        offset: pointer<f32>,
        /// Eight elements for each word, written.
        out: pointer<Bf16>,
        /// Number of words.
        words: u32,
    }
}

/// Dequantization to bf16.
pub const NF4_DEQUANTIZE: Signature = Signature {
    image: "nf4_dequantize",
    parameters: DequantizeParameters::<()>::LIST,
    entries: &["nf4_dequantize"],
};
/// Threads of a block of [`NF4_DEQUANTIZE`].
pub const DEQUANTIZE_THREADS: u32 = 256;
/// Words of codes per thread of [`NF4_DEQUANTIZE`].
pub const WORDS_PER_THREAD: u32 = 4;

/// Elements that share a scale.
pub const BLOCK: u32 = 64;
/// Quantized scales that share a second-level scale.
pub const NESTED_BLOCK: u32 = 256;
/// Values of a quantized scale.
pub const BYTE_VALUES: u32 = 256;

/// The values of the codes in units of the scale: quantiles of the normal distribution.
pub const CODE_VALUES: &[f32] = &[
    -1.0,
    -0.696_192_8,
    -0.525_073_05,
    -0.394_917_5,
    -0.284_441_38,
    -0.184_773_43,
    -0.091_050_036,
    0.0,
    0.079_580_3,
    0.160_930_2,
    0.246_112_3,
    0.337_915_24,
    0.440_709_83,
    0.562_617,
    0.722_956_84,
    1.0,
];
