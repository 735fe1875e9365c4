//! The error of a failed capture.

use std::fmt;

use retrograph_driver_sys::CUresult;

use super::invalidation::FirstFailure;

/// A capture that yielded no graph.
#[derive(Debug)]
pub struct CaptureError {
    /// The first driver call that failed: the cause. `None` if no call failed and the body returned
    /// an error.
    pub first: Option<FirstFailure>,
    /// The error that the body returned, or why the capture could not begin. If the body returned
    /// `Ok` and no call failed: [`crate::Error::CaptureLost`] with the place at which the stream
    /// was no longer capturing.
    pub cause: Option<Box<dyn std::error::Error + Send + Sync>>,
    /// The code of `cuStreamEndCapture`, 901 for a broken capture; `None` if it never began.
    pub end: Option<CUresult>,
    /// Whether the stream has left the capture and works, so that the work can run eagerly or be
    /// captured again.
    pub recovered: bool,
}

impl fmt::Display for CaptureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.first, &self.cause) {
            (Some(first), _) => write!(f, "the capture failed: {first}")?,
            (None, Some(cause)) => write!(f, "the capture was aborted: {cause}")?,
            (None, None) => write!(f, "the capture returned no graph")?,
        }
        let state = if self.recovered { "works again" } else { "could not be recovered" };
        write!(f, "; the stream {state}")
    }
}

impl std::error::Error for CaptureError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.first {
            Some(first) => Some(&first.error),
            None => self.cause.as_ref().map(|cause| &**cause as &(dyn std::error::Error + 'static)),
        }
    }
}
