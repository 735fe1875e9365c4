//! Gradient clipping, learning-rate schedule, AdamW, and the parameters of a step.

mod adamw;
mod clip;
mod schedule;
mod step_parameters;

pub use adamw::{ADAMW, AdamW, AdamWTensor};
pub use clip::{CLIP, CLIP_SCALE, Clip, ClipScale, Guard, SQUARED_SUMS};
pub use clip::{SquaredSums, squared_sums_partials};
pub use schedule::{SCHEDULE, Schedule};
pub use step_parameters::{FETCH_STEP_PARAMETERS, FetchStepParameters};

use crate::Kernel;

/// References in f64.
pub mod reference {
    pub mod adamw;
    pub mod clip;
}

/// The kernels of this family.
pub(crate) static KERNELS: &[&Kernel] =
    &[&ADAMW, &CLIP, &CLIP_SCALE, &SCHEDULE, &SQUARED_SUMS, &FETCH_STEP_PARAMETERS];
