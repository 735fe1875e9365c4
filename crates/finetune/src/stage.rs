//! The stages in which a trainer or a generator starts.

use retrograph_runtime::{Progress, Report, WarmModules};

use crate::trainer::MemoryNeed;

/// A stage of the start of a trainer or a generator, in this order.
#[derive(Debug)]
#[non_exhaustive]
pub enum Stage<'a> {
    /// The f16 copies of frozen weights do not fit in device memory. Each step splits the weights,
    /// which takes longer.
    WithoutCopies {
        /// Bytes of the copies.
        bytes: usize,
    },
    /// A kernel became warm.
    Warming(&'a Progress<'a>),
    /// All kernels are warm.
    Warm(&'a WarmModules),
    /// The run fits in device memory; the second field is the free memory in bytes.
    Fits(&'a MemoryNeed, usize),
    /// A parameter was uploaded.
    Uploading {
        /// Uploaded bytes.
        done: usize,
        /// All bytes.
        total: usize,
        /// The parameter.
        name: &'a str,
    },
    /// The program of the step is built.
    Built(&'a Report),
}
