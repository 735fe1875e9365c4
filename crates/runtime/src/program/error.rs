//! Errors of building programs and of stepping them.

use std::ops::Range;
use std::sync::Arc;

use retrograph_driver::{CallError, CaptureError, Error};

use crate::library::Ranks;
use crate::modules::JitAfterWarm;
use crate::pass::ControlError;

/// Why a program could not be built. Nothing has run, nothing leaks, and the stream is usable
/// unless the context is lost.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// An external buffer that operations access is not bound.
    #[error("the external buffer `{buffer}` is not bound; bind a device buffer to it")]
    Unbound {
        /// The buffer.
        buffer: String,
    },

    /// The memory of an external buffer has another size.
    #[error("`{buffer}` has {expected} bytes but is bound to {found}; bind whole buffers")]
    BoundLength {
        /// The buffer.
        buffer: String,
        /// Its bytes.
        expected: usize,
        /// Bytes that were bound.
        found: usize,
    },

    /// Only a part of an external buffer is bound.
    #[error(
        "only bytes {slice:?} of the {expected} bytes of `{buffer}` are bound; bind the whole \
         buffer, or declare an external buffer for the part"
    )]
    BoundSlice {
        /// The buffer.
        buffer: String,
        /// The bytes that were named.
        slice: Range<usize>,
        /// The bytes of the buffer.
        expected: usize,
    },

    /// The memory of an external buffer is not aligned for vector loads.
    #[error(
        "`{buffer}` is bound to address {address:#x}, which is not a multiple of {alignment}; copy \
         it to aligned memory, or bind an allocation from its start"
    )]
    Misaligned {
        /// The buffer.
        buffer: String,
        /// Its address.
        address: u64,
        /// The required alignment in bytes.
        alignment: u64,
    },

    /// A binding names a buffer of another pass.
    #[error("a binding names a buffer of another pass than `{pass}`")]
    WrongPass {
        /// The pass of the program.
        pass: String,
    },

    /// A transient or a control is bound; the program allocates these.
    #[error("`{buffer}` is bound, but only external buffers can be")]
    NotExternal {
        /// The buffer.
        buffer: String,
    },

    /// Two external buffers share memory and one of them is written.
    #[error(
        "`{one}` and `{other}` are bound to the same memory, but one of them is written; declare \
         one external buffer and use slices of it"
    )]
    SharedMemory {
        /// One buffer.
        one: String,
        /// The other.
        other: String,
    },

    /// Transients do not fit into device memory.
    #[error(
        "the transients of the pass need {needed} bytes, but {free} bytes of the device are free; \
         free other memory, or describe a pass with smaller transients"
    )]
    OutOfMemory {
        /// Bytes of the smallest allowed plan.
        needed: usize,
        /// Free device bytes.
        free: usize,
    },

    /// A program of a cache exceeds the cache's budget.
    #[error(
        "the program needs {needed} bytes, but the budget of the cache is {budget}; raise it, or \
         use smaller buckets"
    )]
    OverBudget {
        /// Bytes of the program and of its transients, by the smallest allowed plan.
        needed: usize,
        /// The budget in bytes.
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
        /// The error.
        cause: Error,
    },

    /// A library matrix product has no library handle.
    #[error("`{operation}` needs cuBLAS; give the bindings a handle (`Bindings::cublas`)")]
    NoCublas {
        /// The operation.
        operation: String,
    },

    /// A collective has no communicator.
    #[error(
        "`{operation}` needs NCCL; give the bindings a communicator (`Bindings::communicator`)"
    )]
    NoCommunicator {
        /// The operation.
        operation: String,
    },

    /// The communicator has other ranks than the pass was described for.
    #[error(
        "`{operation}` is described for rank {} of {}, but the communicator is rank {} of {}; \
         describe the pass for the ranks of the communicator",
        ranks.rank, ranks.world_size, held.rank, held.world_size
    )]
    OtherRanks {
        /// The operation.
        operation: String,
        /// The ranks of the pass.
        ranks: Ranks,
        /// The ranks of the communicator.
        held: Ranks,
    },

    /// A library call cannot be added to a graph by hand.
    #[error(
        "`{operation}` is a library call, which can only be captured; use the policy hybrid, \
         capture, eager or auto"
    )]
    NotManual {
        /// The operation.
        operation: String,
    },

    /// The capture of eager launches, or of a library call, failed.
    #[error(transparent)]
    Capture(#[from] CaptureError),

    /// A graph has more or fewer nodes than its operations account for, so it would compute
    /// something else.
    #[error("the graph has {nodes} nodes, but its operations account for {expected}")]
    NodeCount {
        /// Nodes of the graph.
        nodes: usize,
        /// Expected nodes.
        expected: usize,
    },

    /// The program was given up and cannot be rebound.
    #[error("the program was given up: {cause}")]
    GivenUp {
        /// The failure that ended it.
        cause: Box<StepError>,
    },

    /// The driver failed.
    #[error(transparent)]
    Device(#[from] Error),
}

impl BuildError {
    /// The driver call that failed, if one did.
    pub fn call(&self) -> Option<&CallError> {
        match self {
            Self::Device(error) | Self::Operation { cause: error, .. } => error.call(),
            Self::Capture(error) => error.first.as_ref().map(|first| &first.error),
            Self::GivenUp { cause } => cause.call(),
            _ => None,
        }
    }

    /// Whether the context is lost, so that an eager program would fail too.
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

/// Why a step did not run, or ran only in part.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StepError {
    /// A control has no value, or the controls belong to another pass. Nothing has run.
    #[error(transparent)]
    Controls(#[from] ControlError),

    /// The device refused the step before any of it ran. It can be retried.
    #[error("the step did not start: {cause}")]
    NotStarted {
        /// The error.
        cause: Error,
    },

    /// The device has fetched more or fewer step parameters than it was given, although nothing is
    /// in flight, so steps may see the wrong parameters. Later steps are refused.
    #[error(
        "the device has fetched the parameters of {fetched} steps, but was given those of {given}, \
         although nothing is in flight; build the program again, and launch its graph by other \
         means only between steps"
    )]
    ParametersOutOfStep {
        /// Steps whose parameters were given to the device, modulo 2³².
        given: u32,
        /// Steps whose parameters it has fetched, modulo 2³².
        fetched: u32,
    },

    /// The eager launches stopped in the middle. Buffers that the step updates in place are
    /// inconsistent, so all later steps are refused.
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
        /// The error.
        cause: Error,
    },

    /// Rebinding failed half-way and could not be undone, so a step would mix old and new buffers.
    #[error(
        "rebinding failed half-way ({cause}); some nodes still use the old buffers; build the \
         program again"
    )]
    HalfRebound {
        /// The first error.
        cause: Arc<BuildError>,
    },

    /// The program was given up after an earlier failure.
    #[error("the program was given up: {cause}")]
    GivenUp {
        /// The failure that ended it.
        cause: Box<StepError>,
    },
}

impl StepError {
    /// The driver call that failed, if one did.
    pub fn call(&self) -> Option<&CallError> {
        match self {
            Self::NotStarted { cause } | Self::Incomplete { cause, .. } => cause.call(),
            Self::HalfRebound { cause } => cause.call(),
            Self::GivenUp { cause } => cause.call(),
            Self::Controls(_) | Self::ParametersOutOfStep { .. } => None,
        }
    }

    /// The failure that ended the program, or this error.
    pub fn first_cause(&self) -> &Self {
        match self {
            Self::GivenUp { cause } => cause.first_cause(),
            other => other,
        }
    }
}
