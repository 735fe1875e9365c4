//! Library calls as operations of a pass: libraries that enqueue work on a given stream.
//!
//! A pass knows only the bytes that a library call accesses. A program gives the call a stream: its
//! own stream for an eager step, and a capturing stream for a graph. However many nodes the library
//! adds, the graph orders them by the declared accesses.
//!
//! ```
//! # #[cfg(feature = "sim")] {
//! use retrograph_runtime::{
//!     Bindings, Context, DeviceBuffer, DeviceIndex, Driver, LibraryCall, ModuleCache, Pass,
//!     Policy, Program, Strategy, Stream,
//! };
//!
//! let mut pass = Pass::new("with a library");
//! let input = pass.external::<f32>("input", 4);
//! let output = pass.external::<f32>("output", 4);
//! let inner = pass.transient::<f32>("inner", 4);
//! pass.copy(input, inner)?;
//! let call = LibraryCall::new("a library copy", |scope| {
//!     let (from, to) = (scope.range(0), scope.range(1));
//!     // SAFETY: both ranges are declared, of equal length, and in two buffers.
//!     unsafe { scope.stream().memcpy_dtod(to.address, from.address, from.bytes) }
//! });
//! // SAFETY: the work accesses only the declared ranges, and uses only its stream.
//! unsafe { pass.library(call.reads(inner).writes(output)) }?;
//!
//! let context = Context::new(&Driver::simulated(Default::default())?, DeviceIndex(0))?;
//! let modules = ModuleCache::new(&context).prewarm(&pass.requirements(), |_| ())?;
//! let stream = Stream::new(&context)?;
//! let from = DeviceBuffer::from_slice(&stream, &[1.0, 2.0, 3.0, 4.0_f32])?;
//! let to = DeviceBuffer::zeroed(&context, 4)?;
//! let mut bindings = Bindings::new();
//! bindings.bind(input, &from).bind(output, &to);
//! let mut program = Program::build(&stream, &modules, &pass, &bindings, Policy::Auto)?;
//! assert_eq!(program.report().strategy, Strategy::Hybrid);
//! program.step(&stream, &pass.controls())?;
//! assert_eq!(to.download(&stream)?, [1.0, 2.0, 3.0, 4.0]);
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Cublas`] is built in: [`LibraryGemm`](crate::LibraryGemm) describes a matrix product without a
//! device, and [`Bindings::cublas`](crate::Bindings::cublas) provides the handle.
//!
//! So are collectives by [NCCL](nccl): [`CollectiveGroup`](crate::CollectiveGroup) describes them,
//! and [`Bindings::communicator`](crate::Bindings::communicator) provides the [`Communicator`].
//!
//! A library's workspace is a buffer of the pass, so the plan counts it and the graph keeps it
//! alive.

mod cublas;
pub mod nccl;
mod table;

use retrograph_driver::{Context, Result, Stream};
use retrograph_driver_sys::CUresult;

pub(crate) use cublas::GemmProblem;
pub use cublas::{CUBLAS_WORKSPACE_BYTES, Cublas, MatrixShape};
pub(crate) use nccl::Collective;
pub use nccl::{CollectiveKind, Communicator, Nccl, Ranks, UniqueId};
pub use table::CublasTable;

/// A range of device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRange {
    /// The start address.
    pub address: u64,
    /// Size in bytes.
    pub bytes: usize,
}

/// The stream to enqueue on, and the addresses of the declared ranges.
///
/// The work may use other streams if they first wait for an event of this stream, and this stream
/// finally waits for them.
pub struct LibraryScope<'a> {
    stream: &'a Stream,
    ranges: &'a [DeviceRange],
}

impl<'a> LibraryScope<'a> {
    pub(crate) fn new(stream: &'a Stream, ranges: &'a [DeviceRange]) -> Self {
        Self { stream, ranges }
    }

    /// The stream. It is capturing while a graph is built.
    pub fn stream(&self) -> &'a Stream {
        self.stream
    }

    /// The context, which is current.
    pub fn context(&self) -> &'a Context {
        self.stream.context()
    }

    /// The declared range at position `at`.
    ///
    /// # Panics
    /// If fewer ranges were declared.
    pub fn range(&self, at: usize) -> DeviceRange {
        self.ranges[at]
    }

    /// Converts the code of the driver function `call` into a result. In a capture, the first
    /// failure that passes through here is reported as the cause.
    ///
    /// # Errors
    /// Unless `code` is success.
    pub fn check(&self, call: &'static str, code: CUresult) -> Result<()> {
        self.context().check(call, code)
    }
}
