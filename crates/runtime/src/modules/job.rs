//! The compilation of one of several concurrent images, and its failures.

use std::time::Duration;

use retrograph_ptx::SmTarget;

/// Why a process failed to compile an image.
#[derive(Debug)]
pub(super) enum Failure {
    /// Reported by the process, or by its exit status.
    Told(String),
    /// The time limit was exceeded.
    TooSlow,
    /// The driver in this process failed. It compiles the image again alone and reports why.
    Here,
}

impl From<String> for Failure {
    fn from(reason: String) -> Self {
        Self::Told(reason)
    }
}

/// One image to compile.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job<'a> {
    pub(super) ptx: &'a str,
    /// The SM target of exactly the device.
    pub(super) device: SmTarget,
    /// Time limit.
    pub(super) limit: Duration,
}
