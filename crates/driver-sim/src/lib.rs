//! The CUDA driver API, simulated.
//!
//! A [`Simulator`] is a machine with one or more devices. Its [`table`](Simulator::table) has the
//! same functions as the table of a real driver, and they do the same: memory, streams, events,
//! modules, launches, stream capture and graphs. Kernels are PTX, which is parsed and executed on
//! the CPU. Nothing here is fast in the way of a GPU; everything is repeatable.
//!
//! ```
//! use retrograph_driver_sim::{Config, Simulator};
//!
//! let simulator = Simulator::new(Config { memory_bytes: 1 << 20, ..Config::default() })?;
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
//! // Fresh memory is not zero: it holds a NaN that is also an absurd index.
//! assert_eq!(word, retrograph_driver_sim::POISON);
//! assert_eq!(simulator.finish().unwrap_err().allocations, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # How it differs from hardware
//!
//! It is as late and as strict as the rules of CUDA allow:
//!
//! - Queued work runs when somebody waits for it, not before. A stream that is asked whether it is
//!   done says "not ready" at first.
//! - Where an order is open, a seed chooses it: between streams, and between the nodes of a graph
//!   that no edge orders.
//! - A synchronous copy from pageable memory may land after it returned, ordered only with the
//!   legacy stream and those that wait for it. Pinned memory is read when the copy runs.
//! - Fresh memory is poisoned, addresses and handles are never used twice, and an access outside
//!   of a live allocation is a fault with kernel, block, thread and address.
//! - A capture that was broken returns its reason once, then 901, until it is ended.
//!
//! What CUDA leaves undefined and what the simulator does not know are told apart by
//! [`Diagnostic`]s. A call that is not simulated returns `CUDA_ERROR_NOT_SUPPORTED`.
//!
//! # Worlds
//!
//! Each simulator is a world of its own, with its own devices, handles and current contexts, so
//! that tests can run side by side. A process can have 16 at a time; a further one waits.
//!
//! Absent on purpose: cubins and fatbins, several contexts on one device, the per-thread default
//! stream, peer and managed memory, arrays and textures, memory nodes, and timing: elapsed times
//! are those of the CPU.

mod api;
mod argument;
mod attested;
mod config;
mod diagnostic;
pub mod exec;
mod globals;
mod jit;
mod kernel;
mod live;
pub mod memory;
mod random;
mod refusal;
mod rule;
mod state;
pub mod symbols;
mod trampoline;
mod work;
mod world;

pub use attested::counts as attested_counts;
pub use config::{Config, SimError};
pub use diagnostic::{Diagnostic, DiagnosticKind};
pub use live::Live;
pub use memory::POISON;
pub use refusal::Refused;
pub use rule::Rule;
pub use world::Simulator;

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The examples of the README of `retrograph-driver-sys` are tests here, where their driver is.
#[cfg(doctest)]
#[doc = include_str!("../../driver-sys/README.md")]
struct DriverSysReadme;

/// The example of the guide is a test.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/simulator.md")]
struct Guide;
