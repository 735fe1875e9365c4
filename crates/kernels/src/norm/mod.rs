//! RMSNorm, its backward pass, and column sums.

mod column_sum;
mod rms_norm;
mod rms_norm_backward;

pub use column_sum::{COLUMN_SUM, ColumnSum};
pub use rms_norm::{RMS_NORM, ResidualAdd, RmsNorm};
pub use rms_norm_backward::{RMS_NORM_BACKWARD, RMS_NORM_GAMMA_REDUCE};
pub use rms_norm_backward::{RmsNormBackward, RmsNormGammaReduce};

use crate::Kernel;

/// References in f64.
pub mod reference {
    pub mod column_sum;
    pub mod rms_norm;
}

/// The kernels of this family.
pub(crate) static KERNELS: &[&Kernel] =
    &[&COLUMN_SUM, &RMS_NORM, &RMS_NORM_BACKWARD, &RMS_NORM_GAMMA_REDUCE];
