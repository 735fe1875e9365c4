//! One image to compile in another process, and why that can fail.

use std::time::Duration;

use retrograph_kernels::SmTarget;

/// The failure of a process to compile.
#[derive(Debug)]
pub(super) enum Failure {
    /// Reported by the process, or by its exit status.
    Told(String),
    /// The time limit was exceeded.
    TooSlow,
}

impl From<String> for Failure {
    fn from(why: String) -> Self {
        Self::Told(why)
    }
}

/// One image to compile.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job<'a> {
    pub(super) ptx: &'a str,
    /// The SM target of exactly the device.
    pub(super) device: SmTarget,
    /// Number of threads.
    pub(super) threads: usize,
    /// Time limit.
    pub(super) limit: Duration,
}
