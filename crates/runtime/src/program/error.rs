//! Why a program could not be built, or a step could not be done.

use std::sync::Arc;

use retrograph_driver::{CaptureError, Error};
use retrograph_driver_sys::CUgraphExecUpdateResult;

use crate::modules::JitAfterWarm;
use crate::pass::ControlError;

/// A program that could not be built. Nothing has run, nothing is left behind, and the stream can
/// be used as before unless the device itself is lost.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// An external buffer that operations touch has no memory.
    #[error("the external buffer `{buffer}` is bound to nothing")]
    Unbound {
        /// The buffer.
        buffer: String,
    },

    /// The memory of an external buffer has another size.
    #[error("`{buffer}` has {expected} bytes and is bound to {found}; bind whole buffers")]
    BoundLength {
        /// The buffer.
        buffer: String,
        /// Its bytes.
        expected: usize,
        /// Bytes that were bound.
        found: usize,
    },

    /// A binding names a buffer of another pass.
    #[error("a binding names a buffer of another pass than `{pass}`")]
    ForeignBinding {
        /// The pass that was to be built.
        pass: String,
    },

    /// A binding names a transient or a control, whose memory is the program's own.
    #[error("`{buffer}` is bound to memory, but only external buffers can be")]
    NotExternal {
        /// The buffer.
        buffer: String,
    },

    /// Two external buffers share memory and one of them is written.
    #[error(
        "`{one}` and `{other}` are bound to the same memory and one of them is written; declare \
         one external buffer and use slices of it"
    )]
    SharedMemory {
        /// One buffer.
        one: String,
        /// The other.
        other: String,
    },

    /// There are more bytes of controls than the kernel that takes them can count.
    #[error(transparent)]
    Controls(#[from] retrograph_kernels::KernelError),

    /// Transients do not fit into the memory of the device.
    #[error(
        "the transients of the pass need {needed} bytes, and {free} bytes of the device are free; \
         use a smaller batch or a shorter sequence"
    )]
    OutOfMemory {
        /// Bytes of the most frugal plan that may be used.
        needed: usize,
        /// Free device bytes.
        free: usize,
    },

    /// A program of a cache needs more than the cache may hold.
    #[error(
        "the program needs {needed} bytes, and the budget of the cache is {budget}; raise it, or \
         use smaller buckets"
    )]
    OverBudget {
        /// Bytes of the program and of its transients, by the most frugal plan that may be used.
        needed: usize,
        /// Bytes that the cache may hold.
        budget: usize,
    },

    /// A kernel is launched that was not prewarmed.
    #[error("{operation}: {cause}")]
    Cold {
        /// The operation.
        operation: String,
        /// The kernel.
        cause: JitAfterWarm,
    },

    /// A driver call for an operation failed.
    #[error("{operation}: {cause}")]
    Operation {
        /// The operation.
        operation: String,
        /// What failed.
        cause: Error,
    },

    /// A matrix product of a library has no library.
    #[error("`{operation}` needs cuBLAS; give the bindings a handle (`Bindings::cublas`)")]
    NoCublas {
        /// The operation.
        operation: String,
    },

    /// A library's work cannot be added by hand.
    #[error(
        "`{operation}` is work of a library, which no node can be added for; use the policy \
         hybrid, capture, eager or auto"
    )]
    NotManual {
        /// The operation.
        operation: String,
    },

    /// The capture of eager launches, or of one library operation, failed.
    #[error(transparent)]
    Capture(#[from] CaptureError),

    /// A graph has other nodes than its operations account for, so that it would compute something
    /// else: one for each operation, and those that each library call was seen to add.
    #[error("the graph has {nodes} nodes, and its operations account for {expected}")]
    NodeCount {
        /// Nodes of the graph.
        nodes: usize,
        /// Nodes that should be there.
        expected: usize,
    },

    /// The driver does not take over new parameters into the graph that it has instantiated.
    #[error("the driver refused to update the graph: {reason:?}")]
    UpdateRefused {
        /// Why.
        reason: CUgraphExecUpdateResult,
    },

    /// The program was given up, and is not bound again.
    #[error("the program was given up: {cause}")]
    GivenUp {
        /// The failure that ended it.
        cause: Box<StepError>,
    },

    /// The device side failed.
    #[error(transparent)]
    Device(#[from] Error),
}

impl BuildError {
    /// Whether the context is lost, so that an eager program would fail as well.
    pub(super) fn is_fatal(&self) -> bool {
        match self {
            Self::Device(error) | Self::Operation { cause: error, .. } => is_lost(error),
            Self::Capture(error) => !error.recovered,
            _ => false,
        }
    }
}

pub(super) fn is_lost(error: &Error) -> bool {
    matches!(error, Error::ContextLost { .. })
}

/// A step that was not done, or not wholly.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StepError {
    /// A control has no value, or the controls belong to another pass. Nothing has run.
    #[error(transparent)]
    Controls(#[from] ControlError),

    /// The device refused the step before anything of it ran. It can be tried again.
    #[error("the step did not start: {cause}")]
    NotStarted {
        /// What failed.
        cause: Error,
    },

    /// The device has fetched more or fewer step parameters than it was given, although nothing is in
    /// flight, so no step can be trusted to see its own. Later steps are refused.
    #[error(
        "the device is {by} steps behind in fetching step parameters, although nothing is in \
         flight; build the program again, and launch its graph by other means only between its steps"
    )]
    ParametersOutOfStep {
        /// Parameters that were given and not fetched; negative if more were fetched.
        by: i32,
    },

    /// The eager launches stopped in the middle. What the step updates in place is in between two
    /// steps, so that the program refuses all later steps.
    #[error(
        "the step stopped at `{operation}`, after {enqueued} of {operations} operations: {cause}"
    )]
    Incomplete {
        /// The operation that failed.
        operation: String,
        /// Operations enqueued before it.
        enqueued: usize,
        /// Operations of the step.
        operations: usize,
        /// What failed.
        cause: Error,
    },

    /// The program was to be bound to other memory, which failed in the middle, and it could not be
    /// bound to the old memory again either. A step would use some of both, so that none is done.
    #[error("the program is bound to two memories, since binding it failed: {cause}")]
    HalfRebound {
        /// What failed first.
        cause: Arc<BuildError>,
    },

    /// The program was given up at an earlier failure.
    #[error("the program was given up: {cause}")]
    GivenUp {
        /// The failure that ended it.
        cause: Box<StepError>,
    },
}

impl StepError {
    /// The failure that ended the program, or this one.
    pub fn first_cause(&self) -> &Self {
        match self {
            Self::GivenUp { cause } => cause.first_cause(),
            other => other,
        }
    }
}
