//! RMSNorm, forward and backward, and column sums, the last stage of its backward pass.

pub(crate) mod column_sum;
pub(crate) mod rms_norm;
pub(crate) mod rms_norm_backward;
