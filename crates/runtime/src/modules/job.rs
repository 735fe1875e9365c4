//! One image to compile in another process, and why that can fail.

use std::time::Duration;

use retrograph_kernels::SmTarget;

/// Why a process made no code.
#[derive(Debug)]
pub(super) enum Failure {
    /// It says so itself, or how it ended does.
    Told(String),
    /// It took longer than it may.
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
    /// The target that names exactly the device.
    pub(super) device: SmTarget,
    /// Threads to use for it.
    pub(super) threads: usize,
    /// The longest that it may take.
    pub(super) limit: Duration,
}
