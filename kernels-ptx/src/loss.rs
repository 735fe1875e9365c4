//! Loss functions.

pub(crate) mod cross_entropy;
pub(crate) mod log_ratios;
pub(crate) mod mean;
pub(crate) mod preference;
pub(crate) mod row_order;
pub(crate) mod scale_rows;
