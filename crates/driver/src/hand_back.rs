//! Runs the releases of a context.

use crate::call::CallError;
use crate::capture::window;
use crate::context::Context;
use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::release::Release;

impl Context {
    /// Releases an object by `action`, now or after the captures in progress. `action` runs with
    /// the context current, and is retried later if it fails.
    ///
    /// For objects of libraries that live in this context, such as a cuBLAS handle.
    pub fn release<F>(&self, action: F)
    where
        F: FnMut(&Driver) -> Result<(), CallError> + Send + 'static,
    {
        let _hold = self.releases().hold();
        // This thread may capture in another context; the end of that capture does not run these
        // releases.
        if window::is_open() {
            self.releases().later(Release::new(action));
            let context = self.clone();
            window::after_captures(move || context.hand_back_due());
            return;
        }
        if let Some(release) = self.releases().now_or_later(Release::new(action)) {
            self.hand_back(release);
            // Retries earlier failures.
            self.releases().due().into_iter().for_each(|release| self.hand_back(release));
        }
    }

    /// Number of queued releases: deferred by a capture, or to be retried.
    pub fn deferred_releases(&self) -> usize {
        self.releases().waiting()
    }

    /// Runs `action` while no thread captures in the context and none can begin a capture. For
    /// library calls that wait for the device or allocate, which would break a capture of any
    /// thread.
    ///
    /// # Errors
    /// [`Error::RefusedDuringCapture`] with `operation` if any thread captures in the context, or
    /// this thread in another one.
    pub fn without_captures<R>(
        &self,
        operation: &'static str,
        action: impl FnOnce() -> R,
    ) -> Result<R> {
        let _hold = self.releases().hold_in_turn();
        if window::is_open() || self.releases().capturing() {
            return Err(Error::RefusedDuringCapture { operation });
        }
        Ok(action())
    }

    /// Counts the end of a capture and runs the releases that it deferred, unless this thread
    /// captures in another context.
    pub(crate) fn capture_ended(&self) {
        self.releases().capture_ends();
        let context = self.clone();
        window::after_captures(move || context.hand_back_due());
    }

    /// Runs the deferred releases, unless a capture is in progress.
    fn hand_back_due(&self) {
        let _hold = self.releases().hold();
        self.releases().due().into_iter().for_each(|release| self.hand_back(release));
    }

    fn hand_back(&self, mut release: Release) {
        let Err(error) = self.try_to_hand_back(&mut release) else { return };
        release.failed += 1;
        match error {
            // The objects of the context are gone with it. A graph template is not part of a
            // context and is destroyed now, even if its own release reported the fault.
            Error::ContextLost { .. } => {
                let _ = self.try_to_hand_back(&mut release);
            }
            error if release.failed < Release::MAX_ATTEMPTS => {
                tracing::warn!(%error, "a release failed and will be retried");
                self.releases().later(release);
            }
            error => tracing::error!(%error, "a release failed repeatedly; the object is leaked"),
        }
    }

    fn try_to_hand_back(&self, release: &mut Release) -> Result<()> {
        match self.bind() {
            // Graph templates are not part of a context.
            Ok(()) | Err(Error::ContextLost { .. }) => {}
            Err(error) => return Err(error),
        }
        release.run(self.driver()).map_err(|error| self.failed(error))
    }
}
