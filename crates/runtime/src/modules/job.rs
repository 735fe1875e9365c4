//! One image to compile, one of several at a time, and why that can fail.

use std::time::Duration;

use retrograph_kernels::SmTarget;

/// The failure of a process to compile.
#[derive(Debug)]
pub(super) enum Failure {
    /// Reported by the process, or by its exit status.
    Told(String),
    /// The time limit was exceeded.
    TooSlow,
    /// Of the driver in this process, which compiles the image again on its own and says why.
    Here,
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
    /// Time limit.
    pub(super) limit: Duration,
}
