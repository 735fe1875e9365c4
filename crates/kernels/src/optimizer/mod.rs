//! Gradient clipping, learning-rate schedule, AdamW, and the parameters of a step.
//!
//! A step runs [`FetchStepParameters`], [`LrSchedule`], [`GradNormPartials`], [`ClipFactor`] and
//! [`AdamW`], which clips gradients as it reads them. [`ClipGrads`] clips them in memory. Kernels
//! read values that change from step to step from device memory, so a graph can be replayed
//! unchanged. Kernels over lists of tensors process all of them in one launch; tensors have any
//! shape and are f32, except gradients that [`GradNormPartials`] and [`AdamW`] may read in bf16.
//!
//! **Errors.** A launch fails if a length does not match or if a constant is outside of its range.
//! A loss or gradient norm that is not finite is detected on the device; see [`Guard`].
//!
//! **Determinism.** Each element has one thread. Squared sums are f64, and are added per chunk of a
//! tensor and then over chunks, in ascending order.
//!
//! Sources: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", arXiv 1711.05101, in
//! the order of `torch.optim.AdamW`; clipping as `torch.nn.utils.clip_grad_norm_`.

mod adamw;
mod clip;
mod schedule;
mod step_parameters;

pub use adamw::{ADAMW, AdamW, AdamWTensor};
pub use clip::{CLIP_FACTOR, CLIP_GRADS, ClipFactor, ClipGrads, GRAD_NORM_PARTIALS, Guard};
pub use clip::{GradNormPartials, grad_norm_partials_len};
pub use schedule::{Decay, LR_SCHEDULE, LrSchedule};
pub use step_parameters::{FETCH_STEP_PARAMETERS, FetchStepParameters};

use crate::Kernel;

/// References in f64.
pub mod reference {
    pub mod adamw;
    pub mod clip;
}

/// The kernels of this family.
pub(crate) static KERNELS: &[&Kernel] =
    &[&ADAMW, &CLIP_GRADS, &CLIP_FACTOR, &LR_SCHEDULE, &GRAD_NORM_PARTIALS, &FETCH_STEP_PARAMETERS];
