//! Passes as values, run eagerly or as one replayable CUDA graph.
//!
//! A training step is described once, as a [`Pass`]: a list of operations over named buffers, which
//! needs no device. What it needs is made warm, buffers are bound, and the [`Program`] that results
//! does the step by one graph launch.
//!
//! ```
//! # #[cfg(feature = "sim")] {
//! use retrograph_runtime::{
//!     Bindings, Context, DeviceBuffer, DeviceIndex, Driver, ModuleCache, Pass, Policy, Program,
//!     Stream,
//! };
//!
//! // Describe: no device needed.
//! let mut pass = Pass::new("copy");
//! let (input, output) = (pass.external::<f32>("input", 2), pass.external::<f32>("output", 2));
//! pass.copy(input, output)?;
//!
//! // Warm, before weights fill the memory. `Driver::load()` takes the machine's own driver.
//! let driver = Driver::simulated(Default::default())?;
//! let context = Context::new(&driver, DeviceIndex(0))?;
//! let modules = ModuleCache::new(&context).prewarm(&pass.requirements(), |_| ())?;
//!
//! // Bind and run.
//! let stream = Stream::new(&context)?;
//! let from = DeviceBuffer::from_slice(&stream, &[1.0_f32, 2.0])?;
//! let to = DeviceBuffer::zeroed(&context, 2)?;
//! let mut bindings = Bindings::new();
//! bindings.bind(input, &from).bind(output, &to);
//! let mut program = Program::build(&stream, &modules, &pass, &bindings, Policy::Auto)?;
//! program.step(&stream, &pass.controls())?;
//! assert_eq!(to.download(&stream)?, [1.0, 2.0]);
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The layers below can be used by themselves: the device ([`Driver`], [`Context`], [`Stream`],
//! [`DeviceBuffer`]), warm modules ([`ModuleCache`], [`WarmModules`]), and graphs made by hand or
//! by capture ([`Graph`], [`Stream::capture`]), with values that change between replays
//! ([`DeviceScalar`]) and memory that is not allocated meanwhile ([`MemoryPool`]). Where the time
//! goes is in a [`Profile`].
//!
//! # Rules that hold everywhere
//!
//! - Errors are values with the failing call, its code and a way out. Nothing is retried silently,
//!   except instantiating a graph once more after graph memory was given back.
//! - Only non-blocking streams exist, and copies are ordered on the stream that they are given.
//! - Whatever is enqueued unchecked is `unsafe`, and says what must hold; the rest is safe.
//! - Objects can be used from every thread; a capture stays on the thread that began it.
//! - Dropping an object hands it back after the work that uses it, and never inside a capture.
//!
//! Absent on purpose: the runtime API and its implicit state, the legacy stream, unified memory,
//! peer copies, and graphs over several devices.

#[macro_use]
mod macros;

pub mod capture;
pub mod context;
pub mod device;
pub mod driver;
pub mod error;
pub mod event;
mod frequent;
mod gate;
pub mod graph;
pub mod launch;
pub mod library;
mod live;
pub mod memory;
pub mod modules;
pub mod nvtx;
pub mod pass;
mod picture;
pub mod profile;
pub mod program;
mod regular_file;
mod release;
pub mod stream;
mod sync;
pub mod version;

pub use capture::{CaptureError, CaptureMode, Capturing, FirstFailure, Loss};
pub use context::Context;
pub use device::{DeviceIndex, DeviceInfo};
pub use driver::{Driver, Origin};
pub use error::{CallError, Error};
pub use event::Event;
pub use graph::{
    DeviceCopy, DeviceFill, Graph, GraphExec, GraphReport, Node, NodeKind, UpdateOutcome,
};
pub use launch::{KernelArguments, KernelLaunch, LaunchGeometry};
pub use library::{
    CUBLAS_WORKSPACE_BYTES, Cublas, DeviceRange, LibraryGemm, LibraryScope, MatrixShape,
};
pub use memory::{
    DeviceBuffer, DeviceScalar, DriverShare, MemoryPool, PinnedBuffer, PoolSeal, PoolUse,
};
pub use modules::{Function, JitAfterWarm, ModuleCache, PrewarmError, Progress, WarmModules};
pub use pass::{
    Buffer, BufferId, BufferKind, ControlError, Controls, CustomImage, CustomLaunch, Edge, Edges,
    Hazard, LibraryCall, MemoryPlan, OpId, Operation, OperationKind, Pass, PassError, Requirements,
    Reuse, Slice,
};
pub use profile::{KernelTime, OperationTime, PhaseTime, Profile};
pub use program::{
    Admission, AdmitError, Bindings, BuildError, BuildOptions, EarlyStart, EdgeMode, Policy,
    Prediction, ProfileError, Program, Rebound, Report, Rung, StepError, StepOutcome, Strategy,
};
pub use regular_file::open_regular;
pub use stream::Stream;
pub use version::DriverVersion;

/// Keeps something alive: what a graph touches must live as long as the graph.
pub type Owner = std::sync::Arc<dyn std::any::Any + Send + Sync>;

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
