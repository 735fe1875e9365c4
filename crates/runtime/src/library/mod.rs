//! Libraries as operations of a pass: what enqueues work of its own on a stream that it is given.
//!
//! A pass knows such work only by the bytes that it touches. A program hands it a stream: its own
//! for an eager step, and one that is being captured for a graph, so that whatever number of nodes
//! the library adds stands in the graph where its reads and writes put it.
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
//! let call = LibraryCall::new("a foreign copy", |scope| {
//!     let (from, to) = (scope.range(0), scope.range(1));
//!     // SAFETY: both ranges are those of the call, as long as each other, and of two buffers.
//!     unsafe { scope.stream().copy_on_device(to.address, from.address, from.bytes) }
//! });
//! // SAFETY: the work touches what is declared here, in that way, and on its stream alone.
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
//! [`Cublas`] is the one library that the crate knows by itself: [`LibraryGemm`](crate::LibraryGemm) describes a matrix
//! product for it without a device, and [`Bindings::cublas`](crate::Bindings::cublas) says which
//! handle does it.
//!
//! Absent on purpose: memory that a library allocates for itself. A workspace is a buffer of the
//! pass like any other, so that the plan counts it and the graph keeps it.

mod cublas;
mod problem;
mod scope;
mod table;

pub use cublas::{CUBLAS_WORKSPACE_BYTES, Cublas};
pub use problem::MatrixShape;
pub use scope::{DeviceRange, LibraryScope};
pub use table::CublasTable;

pub(crate) use problem::GemmProblem;
