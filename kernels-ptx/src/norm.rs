//! RMSNorm, forward and backward, and the column sums that end its backward pass.

pub(crate) mod column_sum;
pub(crate) mod rms_norm;
pub(crate) mod rms_norm_backward;
