//! Passes as values, run eagerly or as one replayable CUDA graph.
//!
//! A training step is described once, as a [`Pass`]: a list of operations over named buffers, which
//! needs no device. After its kernels are prewarmed and its buffers are bound, the resulting
//! [`Program`] runs the step with one graph launch.
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
//! // Prewarm, before weights fill the memory. `Driver::load()` uses the driver of this machine.
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
//! The feature `kernels`, on by default, adds launches of `retrograph-kernels`. Without it, a pass
//! launches your own PTX, and none of these kernels is compiled into the program.
//!
//! Contexts, streams, device memory, graphs and stream capture come from the crate
//! [`retrograph_driver`], whose types are re-exported here. Its rules apply to all of this crate.

mod explain;
pub mod library;
pub mod memory;
pub mod modules;
pub mod pass;
pub mod picture;
pub mod program;

pub use retrograph_driver::{
    CallError, CaptureError, CaptureInvalidation, CaptureMode, CapturedNodes, Capturing, Context,
    DeviceBuffer, DeviceIndex, DeviceInfo, DeviceScalar, Driver, DriverVersion, EnergyCounter,
    Error, Event, FirstFailure, Function, Graph, GraphExec, GraphReport, KernelArguments,
    KernelLaunch, KernelTime, LaunchAttributes, LaunchGeometry, LoadError, MemcpyParams,
    MemoryPool, MemsetParams, Module, Node, NodeKind, OperationTime, Origin, Owner, PhaseTime,
    PinnedBuffer, PoolSeal, PoolUse, Profile, Stream, TensorMap, TensorMapLayout, TensorMapSwizzle,
    TensorMapType, UpdateOutcome,
};
pub use retrograph_driver::{
    capture, context, device, driver, error, event, graph, launch, nvtx, profile, stream, sys,
    version,
};

/// The arguments of a [`CustomLaunch`].
pub use retrograph_kernel_abi::{
    Access, Argument, ArgumentValue, BufferArgument, Cell, DType, TensorMapArgument,
};
pub use retrograph_ptx::SmTarget;

pub use explain::Explanation;
pub use library::{
    CUBLAS_WORKSPACE_BYTES, CollectiveKind, Communicator, Cublas, DeviceRange, LibraryScope,
    MatrixShape, Nccl, Ranks, UniqueId,
};
pub use memory::DriverOverhead;
pub use modules::{JitAfterWarm, ModuleCache, PrewarmError, Progress, WarmModules};
pub use pass::{
    Buffer, BufferId, BufferKind, CollectiveGroup, ControlError, Controls, CustomImage,
    CustomLaunch, Edge, Edges, Hazard, ImageCode, LibraryCall, LibraryGemm, MemoryPlan, OpId,
    Operation, OperationKind, Pass, PassError, Requirements, Reuse, Slice,
};
pub use picture::graph_to_svg;
pub use program::{
    Admission, AdmitError, Bindings, BuildError, BuildOptions, Collectives, GraphFailure, PdlMode,
    Policy, ProfileError, Program, Reason, Rebound, Report, StepError, StepOutcome, Strategy,
    UpdateStrategy,
};
pub use retrograph_bundle::open_regular;

/// The crate of the trait `Pod`, for buffers and arguments.
pub use retrograph_driver::bytemuck;
/// The simulator, for its configuration, diagnostics and injected failures.
#[cfg(feature = "sim")]
pub use retrograph_driver::sim;
/// The crate of arguments, views and element types.
pub use retrograph_kernel_abi as kernel_abi;
/// The crate of kernels, their launches and errors.
#[cfg(feature = "kernels")]
pub use retrograph_kernels as kernels;
/// The raw NCCL API, for the table.
pub use retrograph_nccl_sys as nccl_sys;
/// The crate of SM targets.
pub use retrograph_ptx as ptx;

// Types that other threads may share, and types that may only be sent to them.
const _: () = {
    const fn is_send<T: Send>() {}
    const fn is_send_and_sync<T: Send + Sync>() {}
    is_send_and_sync::<Pass>();
    is_send_and_sync::<WarmModules>();
    is_send_and_sync::<BuildError>();
    is_send::<Program>();
};

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
