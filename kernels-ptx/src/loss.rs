//! Loss functions.

pub(crate) mod cross_entropy;
pub(crate) mod mean;
