//! Errors of the driver crate: what failed, on what, why, and what to do.

use std::ops::Range;

use crate::call::CallError;
use crate::capture::CaptureInvalidation;
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
    /// A driver library was found but cannot be used.
    #[error("{reason}; reinstall the NVIDIA driver, or use the simulated driver")]
    UnusableDriver {
        /// Why not.
        reason: String,
    },
    /// The simulated driver could not be created.
    #[error("the simulated driver cannot start: {reason}")]
    NoSimulator {
        /// Why not.
        reason: String,
    },
    /// The driver is older than the oldest supported one.
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
    /// There is no device with this index.
    #[error("there is no device {index}: the driver sees {count} device(s)")]
    NoSuchDevice {
        /// The requested index.
        index: u32,
        /// The number of devices.
        count: u32,
    },
    /// A driver call failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The context was lost by an earlier fault, and no work can run in it.
    #[error("the context is lost: {cause}; restart the process to use this device again")]
    ContextLost {
        /// The call that first returned the code. The fault itself may be older, since faults are
        /// reported by a later call.
        cause: CallError,
    },
    /// The operation would break a capture in progress or become part of it, and was refused.
    #[error(
        "{operation} would break a capture in progress or become part of it, so it was refused; \
         try again after the capture"
    )]
    RefusedDuringCapture {
        /// The operation.
        operation: &'static str,
    },
    /// The thread excludes captures in the context, so it would deadlock.
    #[error(
        "{operation} was refused: this thread is inside of a call that excludes captures in the \
         context, such as `Context::without_captures`, a step or a release; capture before or \
         after it"
    )]
    CaptureExcluded {
        /// The operation.
        operation: &'static str,
    },
    /// This thread's capture was lost. Work enqueued now would run at once, outside of the graph,
    /// so it was refused.
    #[error("the capture in progress is lost, so nothing more is enqueued: {loss}")]
    CaptureLost {
        /// The cause of the lost capture.
        loss: Box<CaptureInvalidation>,
    },
    /// A failed capture left the stream unusable, and it was retired.
    #[error(
        "the stream was retired, because it was still capturing after its capture ended; create \
         another one"
    )]
    StreamRetired,
    /// The device has too little memory for an allocation.
    #[error(
        "cannot allocate {requested} bytes: {free} of {total} bytes are free on the device; free \
         other memory, or allocate less"
    )]
    OutOfMemory {
        /// The requested bytes.
        requested: usize,
        /// Free device bytes when the allocation failed.
        free: usize,
        /// Total device bytes.
        total: usize,
    },
    /// A memory pool refuses allocations while it is sealed.
    #[error(
        "cannot allocate {requested} bytes from the memory pool: it is sealed by {by}; allocate \
         before, or drop the seal first"
    )]
    PoolSealed {
        /// The requested bytes.
        requested: usize,
        /// The name of the seal, as given to [`crate::MemoryPool::seal`].
        by: String,
    },
    /// A memory pool has no free block that is large enough.
    #[error(
        "cannot allocate {requested} bytes from the memory pool: {free} of its {capacity} bytes \
         are free, {largest} of them contiguous; enlarge the pool, or free some of its buffers"
    )]
    PoolExhausted {
        /// The requested bytes.
        requested: usize,
        /// Free bytes.
        free: usize,
        /// The bytes of the largest free block.
        largest: usize,
        /// The size of the pool in bytes.
        capacity: usize,
    },
    /// Two lengths differ.
    #[error("{what}: expected {expected} elements, found {found}")]
    LengthMismatch {
        /// The operation.
        what: &'static str,
        /// The required length.
        expected: usize,
        /// The given length.
        found: usize,
    },
    /// A range of elements is outside the buffer.
    #[error("{what}: the range {range:?} is outside the buffer, which has {len} elements")]
    OutsideBuffer {
        /// The operation.
        what: &'static str,
        /// The range.
        range: Range<usize>,
        /// Elements of the buffer.
        len: usize,
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
    /// An argument of a launch has another size than the parameter of the function.
    #[error("`{function}`: argument {index} has {found} bytes, but the parameter has {expected}")]
    ArgumentMismatch {
        /// The entry point.
        function: String,
        /// Position of the argument, from 0.
        index: usize,
        /// Bytes of the function's parameter.
        expected: usize,
        /// Bytes of the given argument.
        found: usize,
    },
    /// A launch has fewer arguments than the function has parameters.
    #[error("`{function}`: argument {index} is missing; its parameter has {expected} bytes")]
    MissingArgument {
        /// The entry point.
        function: String,
        /// Position of the missing argument, from 0.
        index: usize,
        /// Bytes of the function's parameter.
        expected: usize,
    },
    /// A launch has more arguments than the function has parameters.
    #[error("`{function}` has {parameters} parameters; remove the arguments after them")]
    ExtraArgument {
        /// The entry point.
        function: String,
        /// Number of parameters.
        parameters: usize,
    },
    /// The device does not have what a launch attribute needs.
    #[error(
        "`{function}` is launched with {attribute}, which needs compute capability {}.{}, but the \
         device has {}.{}; leave the attribute out on this device",
        required.0, required.1, found.0, found.1
    )]
    AttributeNotOnDevice {
        /// The entry point of the launch.
        function: String,
        /// The attribute.
        attribute: &'static str,
        /// The first compute capability with it.
        required: (u32, u32),
        /// The compute capability of the device.
        found: (u32, u32),
    },
    /// The lists of a tensor map's layout do not have the same number of dimensions.
    #[error(
        "a tensor map has {sizes} sizes, {strides} strides and {box_sizes} box sizes; give 1 to 5 \
         sizes, one stride less, and as many box sizes"
    )]
    TensorMapDimensions {
        /// The number of sizes.
        sizes: usize,
        /// The number of strides.
        strides: usize,
        /// The number of box sizes.
        box_sizes: usize,
    },
    /// The launch attributes of a kernel node cannot change after instantiation.
    #[error(
        "the node of `{function}` has other launch attributes, which cannot change; build and \
         instantiate the graph again"
    )]
    AttributesFixed {
        /// The entry point of the launch.
        function: String,
    },
    /// A node belongs to another graph.
    #[error(
        "the node belongs to another graph; use a node of this graph or, for an executable graph, \
         of the graph that it was instantiated from"
    )]
    WrongGraph,
    /// A graph allocates or frees memory when it runs, which must be allowed explicitly.
    #[error(
        "the graph has {nodes} memory allocation or free node(s); call `Graph::allow_memory_nodes` \
         to allow them"
    )]
    MemoryNodes {
        /// The number of such nodes.
        nodes: usize,
    },
    /// An image cannot be passed to the driver.
    #[error("the image cannot be loaded: {reason}")]
    BadImage {
        /// Why not.
        reason: String,
    },
    /// A module has no entry point of this name.
    #[error(
        "the module has no entry point `{name}`{}; look up a name that its PTX declares `.entry`",
        cause.as_ref().map(|cause| format!(" ({cause})")).unwrap_or_default()
    )]
    NoEntryPoint {
        /// The name.
        name: String,
        /// The driver call; `None` for a name that no entry point can have.
        cause: Option<Box<CallError>>,
    },
    /// A library that an operation needs was not found.
    #[error("{library} was not found ({tried}); {advice}")]
    NoLibrary {
        /// The library.
        library: &'static str,
        /// The tried names and the reasons.
        tried: String,
        /// How to get the library.
        advice: &'static str,
    },
    /// A library that an operation needs was found, but cannot be used.
    #[error("{reason}")]
    UnusableLibrary {
        /// Why, and what to do.
        reason: String,
    },
    /// A function of a library failed.
    #[error("{call} returned {status} ({message})")]
    Library {
        /// The function.
        call: &'static str,
        /// The code.
        status: i32,
        /// The meaning of the code, and the message of the library.
        message: std::borrow::Cow<'static, str>,
    },
    /// A function of a library was not called, since it would fail.
    #[error("{call} was not called: {reason}")]
    NotCalled {
        /// The function, or the library.
        call: &'static str,
        /// Why, and what to do.
        reason: std::borrow::Cow<'static, str>,
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
            Self::NoEntryPoint { cause, .. } => cause.as_deref(),
            Self::CaptureLost { loss } => loss.first().map(|first| &first.error),
            _ => None,
        }
    }
}
