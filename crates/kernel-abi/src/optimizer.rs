//! Gradient clipping, learning-rate schedule, and AdamW.
//!
//! Kernels over lists of tensors read a table in global memory. It has one row per chunk of a
//! tensor, and one block per row. A row holds the address of each array, the number of elements,
//! and the constants of the tensor, eight bytes each.

use crate::Signature;
use crate::parameters::parameters;

/// The most elements of a chunk. A multiple of four, so that chunks keep the alignment of their
/// tensor.
pub const CHUNK: u32 = 16_384;
/// Threads of the block of a chunk.
pub const CHUNK_THREADS: u32 = 512;

/// The layout of a row of a table.
#[derive(Clone, Copy, Debug)]
pub struct TableRow {
    /// Arrays of a tensor.
    pub arrays: usize,
    /// Constants of a tensor.
    pub constants: usize,
}

impl TableRow {
    /// Cells of eight bytes.
    pub const fn cells(self) -> usize {
        self.arrays + 1 + self.constants
    }
}

/// A row of [`ADAMW`]: parameter, gradient, first and second moment, bf16 copy of the parameter or
/// null; the bits of the weight decay; 1 if the gradient is bf16, 0 if it is f32.
pub const ADAMW_ROW: TableRow = TableRow { arrays: 5, constants: 2 };
/// A row of [`GRAD_NORM_PARTIALS`]: the gradient; 1 if it is bf16 or 0 if it is f32.
pub const GRAD_ROW: TableRow = TableRow { arrays: 1, constants: 1 };
/// A row of [`CLIP_GRADS`]: the gradient.
pub const CLIP_ROW: TableRow = TableRow { arrays: 1, constants: 0 };

/// The scalars that [`LR_SCHEDULE`] computes for [`ADAMW`].
pub mod scalar {
    /// The learning rate.
    pub const LR: usize = 0;
    /// `lr / (1 − β1^t)`.
    pub const STEP_SIZE: usize = 1;
    /// `1 / sqrt(1 − β2^t)`.
    pub const ROOT_SCALE: usize = 2;
    /// Number of scalars.
    pub const COUNT: usize = 3;
}

parameters! {
    /// The parameters of [`ADAMW`].
    pub struct AdamWParameters {
        /// A row of [`ADAMW_ROW`] per chunk, read.
        table: pointer<u64>,
        /// The values of [`scalar`], read.
        scalars: pointer<f32>,
        /// Nonzero to skip the update, read; or null.
        halt: pointer<u32>,
        /// The scale of all gradients, read; or null for 1.
        grad_scale: pointer<f32>,
        /// β1.
        beta1: f32,
        /// 1 − β1.
        one_minus_beta1: f32,
        /// β2.
        beta2: f32,
        /// 1 − β2.
        one_minus_beta2: f32,
        /// Added to the square root.
        eps: f32,
    }
}

/// AdamW.
pub const ADAMW: Signature =
    Signature { image: "adamw", parameters: AdamWParameters::<()>::LIST, entries: &["adamw"] };

parameters! {
    /// The parameters of [`GRAD_NORM_PARTIALS`].
    pub struct GradNormPartialsParameters {
        /// A row of [`GRAD_ROW`] per chunk, read.
        table: pointer<u64>,
        /// The sum of squares of each chunk, written.
        partials: pointer<f64>,
    }
}

/// The sum of squares of each chunk.
pub const GRAD_NORM_PARTIALS: Signature = Signature {
    image: "grad_norm_partials",
    parameters: GradNormPartialsParameters::<()>::LIST,
    entries: &["grad_norm_partials"],
};

parameters! {
    /// The parameters of [`CLIP_FACTOR`].
    pub struct ClipFactorParameters {
        /// `n` sums of squares, read.
        partials: pointer<f64>,
        /// The factor, written.
        scale: pointer<f32>,
        /// The norm, written.
        norm: pointer<f32>,
        /// The loss, read; or null.
        loss: pointer<f32>,
        /// The step, read; null without `halt`.
        step: pointer<u32>,
        /// 0, or 1 plus the first step that was not finite, updated; or null.
        halt: pointer<u32>,
        /// Number of partial sums.
        n: u32,
        /// The largest norm.
        max_norm: f32,
    }
}

/// Threads of the one block of [`CLIP_FACTOR`].
pub const CLIP_FACTOR_THREADS: u32 = 1024;
/// Partial sums that a thread of [`CLIP_FACTOR`] loads at a time.
pub const CLIP_FACTOR_LOADS: u32 = 4;

/// The clip factor, with the guard against steps that are not finite.
pub const CLIP_FACTOR: Signature = Signature {
    image: "clip_factor",
    parameters: ClipFactorParameters::<()>::LIST,
    entries: &["clip_factor"],
};

parameters! {
    /// The parameters of [`CLIP_GRADS`].
    pub struct ClipGradsParameters {
        /// A row of [`CLIP_ROW`] per chunk, read.
        table: pointer<u64>,
        /// The factor, read.
        scale: pointer<f32>,
    }
}

/// Scales gradients in place.
pub const CLIP_GRADS: Signature = Signature {
    image: "clip_grads",
    parameters: ClipGradsParameters::<()>::LIST,
    entries: &["clip_grads"],
};

parameters! {
    /// The parameters of [`LR_SCHEDULE`].
    pub struct LrScheduleParameters {
        /// The step, read.
        step: pointer<u32>,
        /// The values of [`scalar`], written.
        scalars: pointer<f32>,
        /// Steps of warm-up.
        warmup_steps: u32,
        /// The step at which the decay starts, not before the end of the warm-up.
        decay_start: u32,
        /// The step at which the rate reaches `min_lr`.
        total_steps: u32,
        /// Whether the decay is linear instead of a cosine.
        linear: bool,
        /// The rate at the end of the warm-up.
        peak_lr: f64,
        /// The rate at the end.
        min_lr: f64,
        /// β1.
        beta1: f64,
        /// β2.
        beta2: f64,
    }
}

/// Learning rate and bias corrections; one warp, in which one thread computes.
pub const LR_SCHEDULE: Signature = Signature {
    image: "lr_schedule",
    parameters: LrScheduleParameters::<()>::LIST,
    entries: &["lr_schedule"],
};
