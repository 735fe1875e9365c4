//! Library calls as operations of a pass: libraries that enqueue work on a given stream.
//!
//! A pass knows a library call only by the bytes that it accesses. A program gives it a stream: its
//! own for an eager step, and a capturing one for a graph. However many nodes the library adds, the
//! graph orders them by the declared accesses.
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
//!     unsafe { scope.stream().copy_on_device(to.address, from.address, from.bytes) }
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
//! A library's workspace is a buffer of the pass, so the plan counts it and the graph keeps it
//! alive.

mod cublas;
mod problem;
mod scope;
mod table;

pub use cublas::{CUBLAS_WORKSPACE_BYTES, Cublas};
pub use problem::MatrixShape;
pub use scope::{DeviceRange, LibraryScope};
pub use table::CublasTable;

pub(crate) use problem::GemmProblem;
