//! Releases of driver objects: exactly once, and never during a capture.
//!
//! An object that is dropped while a capture is in progress is queued on its context, and released
//! after the last capture has ended (see [`CaptureLock`]). A failed release is queued again and
//! retried after later releases and when the context ends. After four attempts the object is leaked
//! and an error is logged.
//!
//! A release waits for the work that uses the object, and releases nothing if that wait fails.

use crate::call::CallError;
use crate::driver::Driver;
use crate::locks::CaptureLock;

/// Releases an object. If it fails, nothing was released and it may be called again.
type Action = Box<dyn FnMut(&Driver) -> Result<(), CallError> + Send>;

/// A pending release.
pub(crate) struct Release {
    action: Action,
    /// Failed attempts.
    pub(crate) failed: usize,
}

impl Release {
    /// Attempts before a release is abandoned: a permanent failure would cost every later release a
    /// call.
    pub(crate) const MAX_ATTEMPTS: usize = 4;

    pub(crate) fn new<F>(action: F) -> Self
    where
        F: FnMut(&Driver) -> Result<(), CallError> + Send + 'static,
    {
        Self { action: Box::new(action), failed: 0 }
    }

    pub(crate) fn run(&mut self, driver: &Driver) -> Result<(), CallError> {
        (self.action)(driver)
    }
}

/// Captures in progress and queued releases of a context, shared by its users.
pub(crate) type Releases = CaptureLock<Release>;

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn back_to_back_captures_do_not_starve_releases() {
        const RELEASES: u64 = 1000;
        /// Far longer than the releases take on a busy machine.
        const MAX_WAIT: Duration = Duration::from_secs(10);
        let (lock, ended) = (CaptureLock::<()>::default(), AtomicBool::new(false));
        let captures = AtomicU64::new(0);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    lock.begin_capture(|| Ok::<_, ()>(())).unwrap();
                    captures.fetch_add(1, Ordering::Relaxed);
                    lock.capture_ends();
                }
            });
            while captures.load(Ordering::Relaxed) == 0 {
                thread::yield_now();
            }
            let started = Instant::now();
            (0..RELEASES).for_each(|_| drop(lock.hold()));
            ended.store(true, Ordering::Relaxed);
            assert!(started.elapsed() < MAX_WAIT, "{:?}", started.elapsed());
        });
    }
}
