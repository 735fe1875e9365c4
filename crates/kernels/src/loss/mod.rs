//! Cross-entropy loss with its gradient, and the mean over the tokens of a batch.

mod cross_entropy;
mod mean;
pub mod reference;

pub use cross_entropy::{CROSS_ENTROPY, CrossEntropy, GradLogits, IGNORED_TARGET};
pub use mean::{MEAN, Mean};

use crate::Kernel;

/// The kernels of this family.
pub(crate) static KERNELS: &[&Kernel] = &[&CROSS_ENTROPY, &MEAN];
