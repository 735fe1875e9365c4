//! RMSNorm, its backward pass, and sums over rows and columns.

mod column_sum;
mod mean;
mod rms_norm;
mod rms_norm_backward;

pub use column_sum::{COLUMN_SUM, ColumnSum};
pub use mean::{MEAN, Mean};
pub use rms_norm::{Addend, RMS_NORM, RmsNorm};
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
    &[&COLUMN_SUM, &MEAN, &RMS_NORM, &RMS_NORM_BACKWARD, &RMS_NORM_GAMMA_REDUCE];
