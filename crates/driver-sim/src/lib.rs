//! The CUDA driver API in host memory.
//!
//! A [`Simulator`] is a machine with one or more devices. Its [`table`](Simulator::table) has the
//! same functions as the table of a real driver, with the same results: memory, streams, events,
//! modules, launches, stream capture and graphs. Kernels are PTX and run on the CPU, by
//! [`retrograph_ptx_exec`]. Every run is reproducible.
//!
//! ```
//! use retrograph_driver_sim::{Config, Simulator};
//!
//! let mut config = Config::default();
//! config.memory_bytes = 1 << 20;
//! let simulator = Simulator::new(config)?;
//! let driver = simulator.table();
//! let (mut context, mut address, mut word) = (Default::default(), 0, 0u32);
//! // SAFETY: every pointer is valid during its call.
//! unsafe {
//!     (driver.cuInit)(0).ok()?;
//!     (driver.cuDevicePrimaryCtxRetain)(&mut context, 0).ok()?;
//!     (driver.cuCtxSetCurrent)(context).ok()?;
//!     (driver.cuMemAlloc_v2)(&mut address, 4).ok()?;
//!     (driver.cuMemcpyDtoH_v2)((&raw mut word).cast(), address, 4).ok()?;
//! }
//! // Fresh memory is poisoned with a NaN that is also an invalid index.
//! assert_eq!(word, retrograph_driver_sim::POISON);
//! assert_eq!(simulator.finish().unwrap_err().allocations, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Fault model
//!
//! The simulator behaves as late and as strictly as CUDA allows:
//!
//! - Queued work runs only when the host waits for it. The first query of a stream returns "not
//!   ready".
//! - A seed chooses every order that CUDA leaves open: between streams, and between graph nodes
//!   without a path.
//! - A synchronous copy from pageable memory may complete after the call returns; it is ordered
//!   only with the legacy stream and blocking streams. A copy reads pinned memory when it runs.
//! - Fresh memory is poisoned, addresses and handles are never reused, and an access outside any
//!   live allocation is a fault that names kernel, block, thread and address.
//! - A broken capture returns its reason once, then 901 until the capture ends.
//! - [`Config::detect_races`] reports unordered accesses of threads to the same byte.
//!
//! [`Diagnostic`]s distinguish undefined behaviour from unimplemented features. After undefined
//! behaviour every call fails. An unsupported call returns `CUDA_ERROR_NOT_SUPPORTED` and changes
//! nothing.
//!
//! [`Order::Prompt`] disables late execution and seeded orders.
//!
//! # Several simulators
//!
//! Each simulator has its own devices, handles and current contexts, so tests can run in parallel.
//! A process can have 16 simulators at a time. Creating another one waits until one is dropped, and
//! fails after a minute ([`SimError::TooManySimulators`]).
//!
//! # Limits
//!
//! Among others, cubins, textures, surfaces, green contexts and virtual memory management are
//! not simulated. An unsupported call names the missing feature in a [`Diagnostic`].
//! Elapsed times are simulated: a kernel takes time for its instructions, a copy or fill for its
//! bytes, and tasks of different streams overlap. They do not predict the times of a GPU.

mod api;
mod argument;
mod attested;
mod config;
mod current;
mod diagnostic;
mod globals;
mod image;
mod jit;
mod kernel;
mod live;
mod random;
mod refusal;
mod rule;
mod state;
pub mod symbols;
mod timeline;
mod trampoline;
mod work;
mod world;

pub use attested::counts as attested_counts;
pub use config::{Config, Order, SimError};
pub use current::{CurrentDevice, current_device, with_per_thread_default_stream};
pub use diagnostic::{Diagnostic, DiagnosticKind};
pub use live::LiveObjects;
pub use refusal::Refused;
pub use retrograph_ptx_exec::FaultSite;
pub use retrograph_ptx_exec::memory::{Memory, MemoryError, POISON};
pub use rule::Rule;
pub use world::Simulator;

/// The raw driver API, for the table and result codes.
pub use retrograph_driver_sys as sys;
/// The crate of fault sites.
pub use retrograph_ptx_exec as ptx_exec;

/// Runs the example of the README as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
