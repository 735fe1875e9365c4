//! Errors of the driver crate: what failed, on what, why, and what to do.

use crate::call::CallError;
use crate::capture::Loss;
use crate::version::DriverVersion;

/// The result of a driver operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An operation on a device that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No driver library was found.
    #[error(
        "no CUDA driver was found ({tried}); install the NVIDIA driver, or use the simulated driver"
    )]
    NoDriver {
        /// The tried names and the reasons.
        tried: String,
    },
    /// A driver library was found, but it cannot be used.
    #[error("{reason}; reinstall the NVIDIA driver, or use the simulated driver")]
    UnusableDriver {
        /// Why not.
        reason: String,
    },
    /// The simulated driver could not be made.
    #[error("the simulated driver cannot start: {reason}")]
    NoSimulator {
        /// Why not.
        reason: String,
    },
    /// The driver is older than this crate can use.
    #[error(
        "the driver supports CUDA {found}, but {needed} or newer is needed; update the NVIDIA \
         driver, or use the simulated driver"
    )]
    DriverTooOld {
        /// The CUDA version that the driver supports.
        found: DriverVersion,
        /// The least version.
        needed: DriverVersion,
    },
    /// There is no device of this index.
    #[error("there is no device {index}: the driver sees {count} device(s)")]
    NoSuchDevice {
        /// The index asked for.
        index: u32,
        /// The number of devices.
        count: u32,
    },
    /// A driver call failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// An earlier call ended the context, so that nothing can run in it any more.
    #[error(
        "the context is lost since {cause}; nothing on this device can continue in this process"
    )]
    ContextLost {
        /// The call that first returned the code. The fault itself may be older, since faults
        /// surface at a later call.
        cause: CallError,
    },
    /// The operation would break a capture in progress or become part of it, and was not tried.
    #[error(
        "{operation} would break a capture in progress or become part of it, so it was refused; \
         try again after the capture"
    )]
    RefusedDuringCapture {
        /// The operation.
        operation: &'static str,
    },
    /// The thread excludes captures in the context, so it would wait for itself.
    #[error(
        "{operation} was refused: this thread is inside of a call that excludes captures in the \
         context, such as `Context::without_captures`, a step or a release; capture before or \
         after it"
    )]
    CaptureExcluded {
        /// The operation.
        operation: &'static str,
    },
    /// The capture that this thread has begun was lost, and work enqueued now would run at once,
    /// outside of the graph; it was not tried.
    #[error("the capture in progress is lost, so nothing more is enqueued: {loss}")]
    CaptureLost {
        /// The cause of the lost capture.
        loss: Box<Loss>,
    },
    /// A capture left the stream unusable, and it was retired.
    #[error("the stream was retired, since it was still capturing after its capture was ended")]
    StreamRetired,
    /// The device has too little memory for an allocation.
    #[error(
        "{requested} bytes do not fit: {free} of {total} bytes are free on the device; use a \
         smaller batch or model, or free other memory"
    )]
    OutOfMemory {
        /// The bytes asked for.
        requested: usize,
        /// Free device bytes at that moment.
        free: usize,
        /// All device bytes.
        total: usize,
    },
    /// A memory pool gives out nothing while it is sealed.
    #[error(
        "{requested} bytes were asked of a memory pool that is sealed by {by}; allocate before, or \
         drop the seal first"
    )]
    PoolSealed {
        /// The bytes asked for.
        requested: usize,
        /// Who sealed it, as given to [`crate::MemoryPool::seal`].
        by: String,
    },
    /// A memory pool has no gap that is large enough.
    #[error(
        "{requested} bytes do not fit into the memory pool: {free} of its {capacity} bytes are \
         free, {largest} of them in one piece; make the pool larger, or free buffers of it"
    )]
    PoolExhausted {
        /// The bytes asked for.
        requested: usize,
        /// Free bytes.
        free: usize,
        /// The bytes of the largest gap.
        largest: usize,
        /// All bytes of the pool.
        capacity: usize,
    },
    /// Two lengths had to be equal and are not.
    #[error("{what}: expected {expected} elements, found {found}")]
    LengthMismatch {
        /// Which operation.
        what: &'static str,
        /// The length that was needed.
        expected: usize,
        /// The length that was given.
        found: usize,
    },
    /// Two objects of different contexts were used together.
    #[error("{what} belongs to another context")]
    WrongContext {
        /// The object.
        what: &'static str,
    },
    /// The driver does not have a function that the operation needs.
    #[error("this driver does not have {call}, which {operation} needs; update the driver")]
    NotInDriver {
        /// The function.
        call: &'static str,
        /// The operation.
        operation: &'static str,
    },
    /// The arguments of a launch do not fit the parameters of the function.
    #[error(
        "`{function}`: argument {index} has {found:?} bytes where the function takes {expected:?} \
         (none: there is no such argument or parameter)"
    )]
    ArgumentMismatch {
        /// The entry point.
        function: String,
        /// Position of the argument, from 0.
        index: usize,
        /// Bytes of the function's parameter.
        expected: Option<usize>,
        /// Bytes of the given argument.
        found: Option<usize>,
    },
    /// A node belongs to another graph.
    #[error("the node belongs to another graph")]
    WrongGraph,
    /// A graph allocates or frees memory when it runs, which was not asked for.
    #[error("the graph has {nodes} memory allocation or free node(s), which were not asked for")]
    MemoryNodes {
        /// How many.
        nodes: usize,
    },
    /// An image cannot be given to the driver.
    #[error("the image cannot be loaded: {reason}")]
    BadImage {
        /// Why not.
        reason: String,
    },
    /// A library that an operation needs was not found.
    #[error("{library} was not found ({tried}); install it, or give its path")]
    NoLibrary {
        /// The library.
        library: &'static str,
        /// The tried names and the reasons.
        tried: String,
    },
    /// A library that an operation needs was not found, or cannot be used.
    #[error("{reason}")]
    UnusableLibrary {
        /// Why, and what to do.
        reason: String,
    },
    /// A function of a library failed.
    #[error("{call} returned {status} ({name})")]
    Library {
        /// The function.
        call: &'static str,
        /// The code.
        status: i32,
        /// The meaning of the code, and what the library says.
        name: std::borrow::Cow<'static, str>,
    },
    /// A file could not be written.
    #[error("{path} could not be written: {reason}")]
    File {
        /// The file.
        path: std::path::PathBuf,
        /// Why.
        reason: String,
    },
}

impl Error {
    /// The driver call that is the cause, if one is.
    pub fn call(&self) -> Option<&CallError> {
        match self {
            Self::Call(error) | Self::ContextLost { cause: error } => Some(error),
            Self::CaptureLost { loss } => loss.first().map(|first| &first.error),
            _ => None,
        }
    }
}
