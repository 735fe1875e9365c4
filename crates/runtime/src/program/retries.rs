//! When a graph that failed is tried again.

/// Eager steps after a fallback before a graph is tried again, for the first, second and third
/// time. After the last one the program stays eager. What a driver lacks at one moment, such as
/// memory, is often there a little later; what is still missing after hundreds of steps is not
/// worth the time of another attempt.
pub const RETRY_AFTER: [u64; 3] = [16, 64, 256];

/// How often a graph was tried again, and when the next time is.
#[derive(Debug, Default)]
pub(super) struct Retries {
    pub(super) used: usize,
    /// Eager steps since the fallback; `None` while no graph is missing.
    pub(super) waited: Option<u64>,
}

impl Retries {
    pub(super) fn next(&self) -> Option<u64> {
        RETRY_AFTER.get(self.used).copied()
    }

    pub(super) fn due(&self) -> bool {
        self.waited.zip(self.next()).is_some_and(|(waited, after)| waited >= after)
    }

    /// Counts a step that was done.
    pub(super) fn stepped(&mut self) {
        if let Some(waited) = &mut self.waited {
            *waited += 1;
        }
    }
}
