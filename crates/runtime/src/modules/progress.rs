//! Progress of prewarming.

use std::time::Duration;

use super::report::Source;

/// The progress of prewarming, reported after each image.
#[derive(Clone, Debug)]
pub struct Progress<'a> {
    /// Images loaded so far.
    pub done: usize,
    /// Total number of images.
    pub total: usize,
    /// The name of the image.
    pub image: &'a str,
    /// The source of the image.
    pub source: Source,
    /// Time for this image; near 0 if it was loaded before.
    pub elapsed: Duration,
}
