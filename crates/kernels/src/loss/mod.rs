//! Loss.

mod cross_entropy;
pub mod reference;

pub use cross_entropy::{CROSS_ENTROPY, CrossEntropy, GradLogits, IGNORED_TARGET};

use crate::Kernel;

/// The kernels of this family.
pub(crate) static KERNELS: &[&Kernel] = &[&CROSS_ENTROPY];
