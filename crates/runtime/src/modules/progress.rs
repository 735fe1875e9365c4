//! Progress of prewarming.

use std::time::Duration;

use super::report::Source;

/// How far prewarming is, told after each image.
#[derive(Clone, Debug)]
pub struct Progress<'a> {
    /// Images that are warm.
    pub done: usize,
    /// Images in all.
    pub total: usize,
    /// The name of the image.
    pub image: &'a str,
    /// Where it came from.
    pub source: Source,
    /// How long it took; next to nothing when it was warm before.
    pub elapsed: Duration,
}
