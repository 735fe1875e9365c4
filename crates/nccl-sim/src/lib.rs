//! Simulated NCCL: the table of [`retrograph_nccl_sys`] for simulated devices.
//!
//! Ranks are threads of one process or processes of one machine; each has its current device in a
//! [simulated driver](retrograph_driver_sim). [`table`] has the same functions as the library.
//! Collectives are host functions on the given stream, so that streams, captures and graphs order
//! them like any other work.
//!
//! The README has an example.
//!
//! # Fault model
//!
//! The simulator behaves as badly as NCCL may:
//!
//! - A collective whose peer is missing hangs until `ncclCommAbort`, even if the peer has died: on
//!   NVLink nothing else ends it. Results are then undefined, here the poison of new memory.
//! - Ranks that disagree on an operation, a size or an order get an asynchronous error that lists
//!   the request of each rank. Hardware hangs, or computes something else.
//! - Destroying a communicator that graphs still use, or whose windows are open, is an error. NCCL
//!   waits for these graphs, and closes these windows.
//! - [`inject`] makes a rank fail, be late, disagree or die at a given collective.
//!
//! Sums are added in the order of a ring that starts at another rank for each block, as in NCCL.
//!
//! # Limits
//!
//! Reductions are sums of f32, f64 and bf16. One thread drives one rank: communicators cannot be
//! created in a group. Windows have no effect: no copy engine is simulated, and sizes of windows
//! are not compared between ranks. After two minutes without an abort, a hanging collective gives
//! up.

mod calls;
mod comm;
mod exchange;
mod fault;
mod forks;
mod group;
mod hub;
mod reduce;
mod request;
mod wire;

pub use calls::{VERSION, table};
pub use comm::{RankState, ranks};
pub use fault::{Fault, FaultKind, inject};

/// The raw NCCL API, for the table and result codes.
pub use retrograph_nccl_sys as nccl_sys;

/// Runs the example of the README as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
