//! Progress of prewarming.

use std::time::Duration;

use super::report::Source;

/// The progress of prewarming, reported after each module.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Progress<'a> {
    /// Modules loaded so far.
    pub done: usize,
    /// Total number of modules.
    pub total: usize,
    /// The name of the image, or of the entry point to which it is cut.
    pub image: &'a str,
    /// The source of the module.
    pub source: Source,
    /// Time for this module; near 0 if it was loaded before.
    pub elapsed: Duration,
}
