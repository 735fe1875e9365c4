//! Why a program has its strategy.

use std::fmt;
use std::sync::Arc;

use retrograph_driver::{CallError, Error};

use super::error::BuildError;

/// The reason for the strategy of a program. Its text is for display.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Reason {
    /// The policy names the strategy.
    Requested,
    /// Eager: no operation reaches the device.
    NothingToLaunch,
    /// Eager: a profiler is attached.
    Profiled,
    /// Eager: a graph of one kernel launch, copy or fill saves nothing.
    SingleOperation,
    /// Manual: every operation can be added to a graph by hand.
    NoLibraryCalls,
    /// Hybrid: library calls can only be captured.
    LibraryCalls,
    /// Capture: there are library calls, and the driver cannot capture into an existing graph.
    NoCaptureIntoGraph,
    /// Eager: the graph failed.
    GraphFailed {
        /// The failure.
        failure: GraphFailure,
        /// Eager steps before the graph is retried; `None` if it was given up.
        retry_after: Option<u64>,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Requested => "the policy names it",
            Self::NothingToLaunch => "there is nothing to launch",
            Self::Profiled => {
                "a profiler can distinguish operations that are launched individually; request a \
                 strategy to see its graph"
            }
            Self::SingleOperation => "a graph of a single operation saves no launch",
            Self::NoLibraryCalls => {
                "one graph launch replaces individual launches, and independent operations run \
                 concurrently"
            }
            Self::LibraryCalls => {
                "library calls are captured into the graph, after the operations they depend on; \
                 all other operations are added by hand"
            }
            Self::NoCaptureIntoGraph => {
                "the pass has library calls, and the driver cannot capture into an existing graph, \
                 so the whole stream is captured"
            }
            Self::GraphFailed { failure, retry_after: Some(steps) } => {
                return write!(f, "{failure}; the graph is retried after {steps} eager steps");
            }
            Self::GraphFailed { failure, retry_after: None } => {
                return write!(f, "{failure}; the graph is not retried again");
            }
        })
    }
}

/// A failure of a graph under [`Policy::Auto`](super::Policy::Auto), followed by eager steps.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GraphFailure {
    /// The graph could not be built.
    #[error("a graph could not be built: {cause}")]
    Build {
        /// The error.
        cause: Arc<BuildError>,
    },
    /// The graph could not be launched.
    #[error("the graph could not be launched: {cause}")]
    Launch {
        /// The error.
        cause: Error,
    },
    /// The graph could not be updated to new bindings.
    #[error("the graph could not be rebound to other memory: {cause}")]
    Rebind {
        /// The error.
        cause: Arc<BuildError>,
    },
}

impl GraphFailure {
    /// The driver call that failed, if one did.
    pub fn call(&self) -> Option<&CallError> {
        match self {
            Self::Build { cause } | Self::Rebind { cause } => cause.call(),
            Self::Launch { cause } => cause.call(),
        }
    }
}
