//! The reason of a lost capture.

use std::fmt;

use crate::call::CallError;

/// The first driver call that failed during a capture, and where in the captured work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstFailure {
    /// The call.
    pub error: CallError,
    /// The last place named by [`Capturing::at`](super::Capturing::at).
    pub place: String,
}

impl fmt::Display for FirstFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.error, self.place)
    }
}

/// The reason why a capture can no longer return a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CaptureInvalidation {
    /// A driver call failed.
    Failed(FirstFailure),
    /// No call is known to have failed, but the driver reports that the stream does not capture:
    /// a library or another thread broke or ended the capture.
    NotActive {
        /// The last place named by [`Capturing::at`](super::Capturing::at).
        place: String,
    },
}

impl CaptureInvalidation {
    /// The first driver call that failed, if any.
    pub fn first(&self) -> Option<&FirstFailure> {
        match self {
            Self::Failed(first) => Some(first),
            Self::NotActive { .. } => None,
        }
    }
}

impl fmt::Display for CaptureInvalidation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(first) => first.fmt(f),
            Self::NotActive { place } => {
                write!(
                    f,
                    "the stream was no longer capturing at {place}; a library or another thread \
                     broke or ended the capture"
                )
            }
        }
    }
}
