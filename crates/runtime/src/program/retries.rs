//! The schedule of retrying a graph after a fallback.

/// Eager steps before each retry of a graph after a fallback. After the last retry the program
/// stays eager. A temporary shortage, for example of memory, often passes after a few steps; one
/// that lasts for hundreds of steps is not worth another attempt.
pub const RETRY_AFTER: &[u64] = &[16, 64, 256];

/// Retries so far, and steps until the next one.
#[derive(Debug, Default)]
pub(super) struct Retries {
    pub(super) used: usize,
    /// Eager steps since the fallback; `None` if there was no fallback.
    pub(super) waited: Option<u64>,
}

impl Retries {
    pub(super) fn next(&self) -> Option<u64> {
        RETRY_AFTER.get(self.used).copied()
    }

    pub(super) fn due(&self) -> bool {
        self.waited.zip(self.next()).is_some_and(|(waited, after)| waited >= after)
    }

    /// Counts a finished step.
    pub(super) fn stepped(&mut self) {
        if let Some(waited) = &mut self.waited {
            *waited += 1;
        }
    }
}
