//! DoRA: the row norms of updated weights, and the column scales computed from them.

use crate::parameters::parameters;
use crate::{Any, Bf16, DType, Signature};

/// The image of every DoRA kernel.
pub const IMAGE: &str = "dora";

parameters! {
    /// The parameters of [`NORMS`].
    pub struct NormsParameters {
        /// `outputs × inputs` weights, read.
        w: pointer<Any>,
        /// A, `rank × inputs` elements, read.
        a: pointer<f32>,
        /// B, `outputs × rank` elements, read.
        b: pointer<f32>,
        /// `outputs` magnitudes, read.
        magnitudes: pointer<f32>,
        /// `outputs` norms, written.
        norms: pointer<f32>,
        /// `outputs` quotients of magnitude and norm, written.
        mag_norm_scales: pointer<f32>,
        /// Rows of w.
        outputs: u32,
        /// Elements in a row of w.
        inputs: u32,
        /// Rank of the update.
        rank: u32,
        /// The scale s of the update.
        scale: f32,
    }
}

/// Geometry of [`NORMS`].
pub mod norms {
    use super::DType;

    /// Rows of a block.
    pub const ROWS: u32 = 32;
    /// Threads of a block.
    pub const THREADS: u32 = 256;
    /// The dtypes of weights.
    pub const DTYPES: &[DType] = &[DType::F32, DType::Bf16];

    /// The entry for weights of type `w`; `None` if there is none.
    pub const fn entry(w: DType) -> Option<&'static str> {
        match w {
            DType::F32 => Some("dora_norms"),
            DType::Bf16 => Some("dora_norms_bf16"),
            _ => None,
        }
    }
}

/// The row norms of an updated weight, and the scales of its outputs.
pub const NORMS: Signature = Signature {
    image: IMAGE,
    parameters: NormsParameters::<()>::LIST,
    entries: &["dora_norms", "dora_norms_bf16"],
};

parameters! {
    /// The parameters of [`SCALE`].
    pub struct ScaleParameters {
        /// `rows × columns` elements, read.
        x: pointer<Any>,
        /// `columns` scales, read.
        mag_norm_scales: pointer<f32>,
        /// `columns` elements, read, or null.
        bias: pointer<f32>,
        /// `rows × columns` results in f32, written, or null.
        y: pointer<f32>,
        /// `rows × columns` results in bf16, written, or null.
        y_bf16: pointer<Bf16>,
        /// Number of rows.
        rows: u32,
        /// Number of columns.
        columns: u32,
    }
}

/// Geometry of [`SCALE`] and [`SCALE_BACKWARD`].
pub mod scale {
    use super::DType;

    /// Columns of a block.
    pub const COLUMNS: u32 = 128;
    /// Rows of a block.
    pub const ROWS: u32 = 64;
    /// Threads of a block.
    pub const THREADS: u32 = 256;
    /// The dtypes of operands.
    pub const DTYPES: &[DType] = &[DType::F32, DType::Bf16];

    /// The entry of [`SCALE`](super::SCALE) for x of this type: f32 or bf16.
    pub const fn entry(x: DType) -> &'static str {
        match x {
            DType::Bf16 => "dora_scale_bf16",
            _ => "dora_scale",
        }
    }

    /// The entry of [`SCALE_BACKWARD`](super::SCALE_BACKWARD) for dy and x of these types: f32 or
    /// bf16.
    pub const fn backward_entry(grad_out: DType, x: DType) -> &'static str {
        match (grad_out, x) {
            (DType::Bf16, DType::Bf16) => "dora_scale_backward_bf16_bf16",
            (DType::Bf16, _) => "dora_scale_backward_bf16_f32",
            (_, DType::Bf16) => "dora_scale_backward_f32_bf16",
            _ => "dora_scale_backward_f32_f32",
        }
    }
}

/// Multiplies each column by a factor and adds a bias.
pub const SCALE: Signature = Signature {
    image: IMAGE,
    parameters: ScaleParameters::<()>::LIST,
    entries: &[scale::entry(DType::F32), scale::entry(DType::Bf16)],
};

parameters! {
    /// The parameters of [`SCALE_BACKWARD`].
    pub struct ScaleBackwardParameters {
        /// `rows × columns` gradients, read.
        grad_out: pointer<Any>,
        /// `rows × columns` inputs of the forward pass, read.
        x: pointer<Any>,
        /// `columns` scales, read.
        mag_norm_scales: pointer<f32>,
        /// `columns` norms, read.
        norms: pointer<f32>,
        /// `rows × columns` gradients in f32, written, or null.
        grad_input: pointer<f32>,
        /// `rows × columns` gradients in bf16, written, or null.
        grad_input_bf16: pointer<Bf16>,
        /// The partial gradients of the magnitudes per [`scale::ROWS`] rows, written.
        grad_magnitudes: pointer<f32>,
        /// Number of rows.
        rows: u32,
        /// Number of columns.
        columns: u32,
    }
}

/// The gradients of the columns before scaling, and of the magnitudes.
pub const SCALE_BACKWARD: Signature = Signature {
    image: IMAGE,
    parameters: ScaleBackwardParameters::<()>::LIST,
    entries: &[
        scale::backward_entry(DType::F32, DType::F32),
        scale::backward_entry(DType::F32, DType::Bf16),
        scale::backward_entry(DType::Bf16, DType::F32),
        scale::backward_entry(DType::Bf16, DType::Bf16),
    ],
};
