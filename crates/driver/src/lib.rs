//! A safe layer over the CUDA driver API: contexts, streams, device memory, modules, graphs and
//! stream capture.
//!
//! Bring your own PTX, cubins or fatbins. Nothing is linked: the driver library is loaded at run
//! time. With the feature `sim`, the same code runs on a simulated driver that executes PTX without
//! a GPU.
//!
//! ```
//! # #[cfg(feature = "sim")] {
//! use retrograph_driver::{
//!     CaptureMode, Context, DeviceBuffer, DeviceIndex, Driver, KernelArguments, KernelLaunch,
//!     LaunchGeometry, Module, Stream,
//! };
//!
//! /// Doubles one float per thread.
//! const DOUBLE: &str = "
//! .version 6.3
//! .target sm_75
//! .address_size 64
//! .visible .entry double_all(.param .u64 x)
//! {
//!     .reg .b32 %r<1>;
//!     .reg .b64 %rd<3>;
//!     .reg .f32 %f<2>;
//!     ld.param.u64        %rd0, [x];
//!     cvta.to.global.u64  %rd1, %rd0;
//!     mov.u32             %r0, %tid.x;
//!     mad.wide.u32        %rd2, %r0, 4, %rd1;
//!     ld.global.f32       %f0, [%rd2];
//!     add.f32             %f1, %f0, %f0;
//!     st.global.f32       [%rd2], %f1;
//!     ret;
//! }
//! ";
//!
//! // `Driver::load()` uses the driver of this machine.
//! let driver = Driver::simulated(Default::default())?;
//! let context = Context::new(&driver, DeviceIndex(0))?;
//! let stream = Stream::new(&context)?;
//! let function = Module::load_ptx(&context, DOUBLE)?.function("double_all")?;
//! let x = DeviceBuffer::from_slice(&stream, &[1.0_f32, 2.0, 3.0, 4.0])?;
//! let arguments = KernelArguments::new().buffer(&x);
//! let geometry = LaunchGeometry::linear(1, 4);
//! let launch = KernelLaunch::new(&function, geometry, &arguments);
//!
//! // Launch.
//! // SAFETY: the kernel accesses four floats at `x`, which outlives the wait in `download`.
//! unsafe { stream.launch(&launch) }?;
//! assert_eq!(x.download(&stream)?, [2.0, 4.0, 6.0, 8.0]);
//!
//! // Capture, and replay.
//! let graph = stream.capture(CaptureMode::ThreadLocal, |capturing| {
//!     // SAFETY: as above, and the graph keeps `x` alive.
//!     unsafe { capturing.launch(&launch) }
//! })?;
//! let mut exec = graph.instantiate()?;
//! exec.launch(&stream)?;
//! exec.launch(&stream)?;
//! assert_eq!(x.download(&stream)?, [8.0, 16.0, 24.0, 32.0]);
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Rules
//!
//! - Errors say what failed and what to do. The error of a driver call has the name of the call and
//!   the code that it returned.
//! - Nothing is retried silently, except instantiating a graph once more after freeing the driver's
//!   cached graph memory. Failed releases are retried, which is logged.
//! - Streams are non-blocking, and copies are ordered on the given stream.
//! - Enqueueing unchecked work is `unsafe` and documents its conditions; everything else is safe.
//! - Objects can be used from any thread; a capture stays on the thread that began it.
//! - Dropping an object releases it after the work that uses it, and never during a capture.
//! - The CUDA runtime API, the legacy default stream, unified memory, peer copies and multi-device
//!   graphs are not supported.

#[macro_use]
mod call;

pub mod capture;
pub mod context;
pub mod device;
pub mod driver;
mod energy;
pub mod error;
pub mod event;
pub mod graph;
pub mod hot_path;
pub mod launch;
mod live;
mod locks;
pub mod memory;
pub mod module;
pub mod nvtx;
mod owner;
pub mod profile;
mod release;
mod run_releases;
pub mod stream;
pub mod tensor_map;
pub mod version;

pub use call::CallError;
pub use capture::{
    CaptureError, CaptureInvalidation, CaptureMode, CapturedNodes, Capturing, FirstFailure,
};
pub use context::Context;
pub use device::{DeviceIndex, DeviceInfo};
pub use driver::{Driver, Origin};
pub use energy::EnergyCounter;
pub use error::{Error, Result};
pub use event::Event;
pub use graph::{
    Graph, GraphExec, GraphReport, MemcpyParams, MemsetParams, Node, NodeKind, UpdateOutcome,
};
pub use launch::{KernelArguments, KernelLaunch, LaunchAttributes, LaunchGeometry};
pub use memory::{DeviceBuffer, DeviceScalar, MemoryPool, PinnedBuffer, PoolSeal, PoolUse};
pub use module::{Function, LoadError, Module, compile_ptx};
pub use owner::Owner;
pub use profile::{KernelTime, OperationTime, PhaseTime, Profile};
pub use stream::{OutsideCapture, Stream};
pub use tensor_map::{TensorMap, TensorMapLayout, TensorMapSwizzle, TensorMapType};
pub use version::DriverVersion;

/// The crate whose trait `Pod` marks the types of buffers and arguments. `#[derive(Pod)]` needs a
/// dependency on `bytemuck` with the feature `derive`.
pub use bytemuck;
/// The simulator, for its configuration, diagnostics and injected failures.
#[cfg(feature = "sim")]
pub use retrograph_driver_sim as sim;
/// The raw driver API, for handles and result codes.
pub use retrograph_driver_sys as sys;
/// The crate of SM targets.
pub use retrograph_ptx as ptx;

// Types that are `Sync`, and types that are only `Send`.
const _: () = {
    const fn is_send<T: Send>() {}
    const fn is_send_and_sync<T: Send + Sync>() {}
    is_send_and_sync::<Driver>();
    is_send_and_sync::<Context>();
    is_send_and_sync::<Module>();
    is_send_and_sync::<Function>();
    is_send_and_sync::<DeviceBuffer<f32>>();
    is_send_and_sync::<PinnedBuffer<f32>>();
    is_send_and_sync::<Error>();
    is_send::<Graph>();
    is_send::<GraphExec>();
    is_send::<Stream>();
    is_send::<Event>();
};

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
