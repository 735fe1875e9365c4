//! Handing things back to the driver, once and surely, but never while a capture could be broken by
//! it.
//!
//! Whatever is dropped while a capture is in progress, by whichever load of the driver, is put on a
//! list of the context, which is worked off when the last capture has ended (see [`crate::gate`]).
//! What the driver refuses to take back, for whatever reason, stays on the list too and is tried
//! again behind later releases, and last when the context ends.
//!
//! What is freed is not in use any more: an action waits for the work that uses the thing, and
//! hands nothing back when that wait fails.

use crate::context::Context;
use crate::driver::Driver;
use crate::error::{CallError, Error, Result};
use crate::gate::Gate;

/// How often something is tried to be handed back. What fails as often is no passing trouble, and
/// trying would cost every later release a call.
const TRIES: usize = 4;

/// Hands something back. When it fails, nothing was handed back, and it may be called again.
type Action = Box<dyn FnMut(&Driver) -> Result<(), CallError> + Send>;

/// Something that is to be handed back.
pub(crate) struct Release {
    action: Action,
    failed: usize,
}

impl Release {
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

/// What the contexts of a device know of each other's captures and releases.
pub(crate) type Releases = Gate<Release>;

impl Context {
    /// Hands something back by `action`: at once, or after the captures in progress. `action` is
    /// called with the context current, and again later if it fails.
    pub(crate) fn release<F>(&self, action: F)
    where
        F: FnMut(&Driver) -> Result<(), CallError> + Send + 'static,
    {
        let _gate = self.releases().no_capture_begins();
        if let Some(release) = self.releases().now_or_later(Release::new(action)) {
            self.hand_back(release);
            // What failed before gets another chance, and so does this if it has just failed.
            self.releases().due().into_iter().for_each(|release| self.hand_back(release));
        }
    }

    /// How many releases wait, for the end of a capture or for another try.
    pub fn deferred_releases(&self) -> usize {
        self.releases().waiting()
    }

    /// Counts the end of a capture and works off what waited for it.
    pub(crate) fn capture_ended(&self) {
        let _gate = self.releases().no_capture_begins();
        self.releases().capture_ends();
        self.releases().due().into_iter().for_each(|release| self.hand_back(release));
    }

    fn hand_back(&self, mut release: Release) {
        let Err(error) = self.try_to_hand_back(&mut release) else { return };
        release.failed += 1;
        match error {
            // What the context held goes with it. A template of a graph goes now, also when the
            // fault has surfaced at the call that was to take it.
            Error::ContextLost { .. } => {
                let _ = self.try_to_hand_back(&mut release);
            }
            error if release.failed < TRIES => {
                tracing::warn!(%error, "a release failed, and is tried again later");
                self.releases().later(release);
            }
            error => tracing::error!(%error, "a release failed again and again; it is leaked"),
        }
    }

    fn try_to_hand_back(&self, release: &mut Release) -> Result<()> {
        match self.bind() {
            // Templates of graphs are not part of a context.
            Ok(()) | Err(Error::ContextLost { .. }) => {}
            Err(error) => return Err(error),
        }
        release.run(self.driver()).map_err(|error| self.failed(error))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn releases_get_their_turn_between_captures_that_follow_without_a_pause() {
        const TURNS: u64 = 1000;
        /// Far more than a turn takes, on a machine that is busy.
        const MOST: Duration = Duration::from_secs(10);
        let (gate, ended) = (Gate::<()>::default(), AtomicBool::new(false));
        let captures = AtomicU64::new(0);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    gate.begin_capture(|| Ok::<_, ()>(())).unwrap();
                    captures.fetch_add(1, Ordering::Relaxed);
                    gate.capture_ends();
                }
            });
            while captures.load(Ordering::Relaxed) == 0 {
                thread::yield_now();
            }
            let started = Instant::now();
            (0..TURNS).for_each(|_| drop(gate.no_capture_begins()));
            ended.store(true, Ordering::Relaxed);
            assert!(started.elapsed() < MOST, "{:?}", started.elapsed());
        });
    }
}
