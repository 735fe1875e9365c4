//! Elementwise kernels: activations, addition, conversion and dropout.
//!
//! A thread handles [`ELEMENTS_PER_THREAD`] consecutive elements; four for dropout.

use crate::parameters::parameters;
use crate::{Any, Bf16, Signature};

/// Elements of a thread.
pub const ELEMENTS_PER_THREAD: u32 = 8;

parameters! {
    /// The parameters of [`ADD`].
    pub struct AddParameters {
        /// `n` elements, read.
        a: pointer<f32>,
        /// `n` elements, read.
        b: pointer<f32>,
        /// `n` elements in f32, written, or null.
        out: pointer<f32>,
        /// `n` elements in bf16, written, or null.
        out_bf16: pointer<Bf16>,
        /// Number of elements.
        n: u32,
    }
}

parameters! {
    /// The parameters of [`CAST`].
    pub struct CastParameters {
        /// `n` elements, read.
        x: pointer<f32>,
        /// `n` elements in f32, written, or null.
        y: pointer<f32>,
        /// `n` elements in bf16, written, or null.
        y_bf16: pointer<Bf16>,
        /// Number of elements.
        n: u32,
    }
}

parameters! {
    /// The parameters of [`SILU`].
    pub struct SiluParameters {
        /// `n` elements, read.
        x: pointer<f32>,
        /// `n` elements in f32, written, or null.
        y: pointer<f32>,
        /// `n` elements in bf16, written, or null.
        y_bf16: pointer<Bf16>,
        /// Number of elements.
        n: u32,
    }
}

parameters! {
    /// The parameters of [`SILU_BACKWARD`].
    pub struct SiluBackwardParameters {
        /// `n` elements, read.
        x: pointer<f32>,
        /// `n` elements, read.
        grad_out: pointer<f32>,
        /// `n` elements in f32, written, or null.
        grad_input: pointer<f32>,
        /// `n` elements in bf16, written, or null.
        grad_input_bf16: pointer<Bf16>,
        /// Number of elements.
        n: u32,
    }
}

/// The activation of a gated linear unit, `activation(gate) · up`.
///
/// Source: Shazeer, "GLU Variants Improve Transformer", 2020.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GatedActivation {
    /// SwiGLU: `silu(gate) · up`.
    #[default]
    Silu,
    /// GeGLU: `gelu(gate) · up`, with the tanh approximation of GELU.
    GeluTanh,
}

parameters! {
    /// The parameters of [`SWIGLU`] and [`GEGLU`].
    pub struct GatedParameters {
        /// `n` elements, read.
        gate: pointer<Any>,
        /// `n` elements, read.
        up: pointer<Any>,
        /// `n` elements in f32, written, or null.
        out: pointer<f32>,
        /// `n` elements in bf16, written, or null.
        out_bf16: pointer<Bf16>,
        /// Number of elements.
        n: u32,
    }
}

parameters! {
    /// The parameters of [`SWIGLU_BACKWARD`] and [`GEGLU_BACKWARD`].
    pub struct GatedBackwardParameters {
        /// `n` elements, read.
        gate: pointer<Any>,
        /// `n` elements, read.
        up: pointer<Any>,
        /// `n` elements, read.
        grad_out: pointer<Any>,
        /// `n` elements in f32, written, or null.
        grad_gate: pointer<f32>,
        /// `n` elements in bf16, written, or null.
        grad_gate_bf16: pointer<Bf16>,
        /// `n` elements in f32, written, or null.
        grad_up: pointer<f32>,
        /// `n` elements in bf16, written, or null.
        grad_up_bf16: pointer<Bf16>,
        /// Number of elements.
        n: u32,
    }
}

parameters! {
    /// The parameters of [`SOFTCAP`].
    pub struct SoftcapParameters {
        /// `n` elements, read.
        x: pointer<f32>,
        /// `n` elements in f32, written, or null.
        y: pointer<f32>,
        /// `n` elements in bf16, written, or null.
        y_bf16: pointer<Bf16>,
        /// Number of elements.
        n: u32,
        /// The cap.
        cap: f32,
    }
}

parameters! {
    /// The parameters of [`SOFTCAP_BACKWARD`].
    pub struct SoftcapBackwardParameters {
        /// `n` elements, read: results of the forward pass.
        y: pointer<f32>,
        /// `n` elements, read.
        grad_out: pointer<f32>,
        /// `n` elements in f32, written, or null.
        grad_input: pointer<f32>,
        /// `n` elements in bf16, written, or null.
        grad_input_bf16: pointer<Bf16>,
        /// Number of elements.
        n: u32,
        /// The cap.
        cap: f32,
    }
}

parameters! {
    /// The parameters of [`DROPOUT`].
    pub struct DropoutParameters {
        /// `n` elements, read.
        x: pointer<f32>,
        /// `n` elements, written or added to.
        out: pointer<f32>,
        /// The step, read.
        step: pointer<u32>,
        /// Number of elements.
        n: u32,
        /// Elements whose random word is below it are dropped.
        threshold: u32,
        /// The scale of the other elements.
        scale: f32,
        /// The random sequence.
        sequence: u32,
        /// The index in the sequence of the first group of four elements.
        first_group: u32,
        /// The lower half of the seed.
        seed_low: u32,
        /// The upper half of the seed.
        seed_high: u32,
        /// Whether `out` is added to.
        accumulate: bool,
    }
}

/// Addition.
pub const ADD: Signature =
    Signature { image: "add", parameters: AddParameters::<()>::LIST, entries: &["add"] };

/// Rounding to bf16.
pub const CAST: Signature =
    Signature { image: "cast", parameters: CastParameters::<()>::LIST, entries: &["cast"] };

/// SiLU.
pub const SILU: Signature =
    Signature { image: "silu", parameters: SiluParameters::<()>::LIST, entries: &["silu"] };

/// The gradient of SiLU.
pub const SILU_BACKWARD: Signature = Signature {
    image: "silu_backward",
    parameters: SiluBackwardParameters::<()>::LIST,
    entries: &["silu_backward"],
};

/// SwiGLU, with inputs in f32 and in bf16.
pub const SWIGLU: Signature = Signature {
    image: "swiglu",
    parameters: GatedParameters::<()>::LIST,
    entries: &["swiglu", "swiglu_bf16"],
};

/// The gradients of SwiGLU, with inputs in f32 and in bf16.
pub const SWIGLU_BACKWARD: Signature = Signature {
    image: "swiglu_backward",
    parameters: GatedBackwardParameters::<()>::LIST,
    entries: &["swiglu_backward", "swiglu_backward_bf16"],
};

/// GeGLU, with inputs in f32 and in bf16.
pub const GEGLU: Signature = Signature {
    image: "geglu",
    parameters: GatedParameters::<()>::LIST,
    entries: &["geglu", "geglu_bf16"],
};

/// The gradients of GeGLU, with inputs in f32 and in bf16.
pub const GEGLU_BACKWARD: Signature = Signature {
    image: "geglu_backward",
    parameters: GatedBackwardParameters::<()>::LIST,
    entries: &["geglu_backward", "geglu_backward_bf16"],
};

/// Soft-capping.
pub const SOFTCAP: Signature = Signature {
    image: "softcap",
    parameters: SoftcapParameters::<()>::LIST,
    entries: &["softcap"],
};

/// The gradient of soft-capping.
pub const SOFTCAP_BACKWARD: Signature = Signature {
    image: "softcap_backward",
    parameters: SoftcapBackwardParameters::<()>::LIST,
    entries: &["softcap_backward"],
};

/// Dropout.
pub const DROPOUT: Signature = Signature {
    image: "dropout",
    parameters: DropoutParameters::<()>::LIST,
    entries: &["dropout"],
};
