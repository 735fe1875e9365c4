//! Runs the releases of a context.

use crate::call::CallError;
use crate::capture::window;
use crate::context::Context;
use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::release::Release;

impl Context {
    /// Releases an object by `action`, now or after the captures in progress. For objects of
    /// libraries that live in this context, such as a cuBLAS handle.
    ///
    /// `action` runs with the context current, unless the context is lost. Meanwhile, no stream of
    /// the context begins or joins a capture. If the release is deferred or retried, another thread
    /// may run it.
    ///
    /// If `action` fails, it must have released nothing. It is retried after later releases, and
    /// when the context ends. After four attempts it is dropped, which leaks the object and logs an
    /// error. In a lost context, it is attempted once more and then dropped. An `action` that keeps
    /// the context alive delays its end, so it is retried only after later releases.
    pub fn release<F>(&self, action: F)
    where
        F: FnMut(&Driver) -> Result<(), CallError> + Send + 'static,
    {
        let _hold = self.releases().hold();
        // This thread may capture in another context; the end of that capture does not run these
        // releases.
        if window::is_open() {
            self.releases().defer(Release::new(action));
            let context = self.clone();
            window::after_captures(move || context.run_due_releases());
            return;
        }
        if let Some(release) = self.releases().ready_or_defer(Release::new(action)) {
            self.run_release(release);
            // Retries earlier failures.
            self.releases().take_ready().into_iter().for_each(|release| self.run_release(release));
        }
    }

    /// Number of queued releases: deferred by a capture, or to be retried.
    pub fn deferred_releases(&self) -> usize {
        self.releases().deferred()
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
        window::after_captures(move || context.run_due_releases());
    }

    /// Runs the deferred releases, unless a capture is in progress.
    fn run_due_releases(&self) {
        let _hold = self.releases().hold();
        self.releases().take_ready().into_iter().for_each(|release| self.run_release(release));
    }

    fn run_release(&self, mut release: Release) {
        let Err(error) = self.try_release(&mut release) else { return };
        release.failed += 1;
        match error {
            // The objects of the context are gone with it. A graph template is not part of a
            // context and is destroyed now, even if its own release reported the fault.
            Error::ContextLost { .. } => {
                let _ = self.try_release(&mut release);
            }
            error if release.failed < Release::MAX_ATTEMPTS => {
                tracing::warn!(%error, "a release failed and will be retried");
                self.releases().defer(release);
            }
            error => tracing::error!(%error, "a release failed repeatedly; the object is leaked"),
        }
    }

    fn try_release(&self, release: &mut Release) -> Result<()> {
        match self.bind() {
            // Graph templates are not part of a context.
            Ok(()) | Err(Error::ContextLost { .. }) => {}
            Err(error) => return Err(error),
        }
        release.run(self.driver()).map_err(|error| self.failed(error))
    }
}
