//! Token embedding, forward and backward.

pub(crate) mod backward;
pub(crate) mod lookup;
