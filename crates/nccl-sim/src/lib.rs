//! NCCL without GPUs: the table of [`retrograph_nccl_sys`], simulated for simulated devices.
//!
//! Ranks are threads of one process or processes of one machine; each has its current device in a
//! [simulated driver](retrograph_driver_sim). [`table`] has the same functions as the library.
//! Collectives are host functions on the given stream, so that streams, captures and graphs order
//! them like any other work.
//!
//! ```
//! use retrograph_driver_sim::{Config, Simulator};
//! use retrograph_driver_sys::CUstream;
//! use retrograph_nccl_sys::{ncclComm_t, ncclDataType_t, ncclRedOp_t, ncclUniqueId};
//!
//! let nccl = retrograph_nccl_sim::table();
//! let mut id = ncclUniqueId::default();
//! // SAFETY: the place is valid.
//! unsafe { (nccl.ncclGetUniqueId)(&mut id) }.ok()?;
//! let rank = move |rank: i32| {
//!     let simulator = Simulator::new(Config::default()).unwrap();
//!     let driver = simulator.table();
//!     let (mut context, mut comm, mut address) = (Default::default(), ncclComm_t::NULL, 0);
//!     let (stream, mut value) = (CUstream::NULL, 1.0 + rank as f32);
//!     let (sum, float) = (ncclRedOp_t::ncclSum, ncclDataType_t::ncclFloat32);
//!     // SAFETY: every pointer is valid during its call, and the buffer outlives its use.
//!     unsafe {
//!         (driver.cuInit)(0).ok().unwrap();
//!         (driver.cuDevicePrimaryCtxRetain)(&mut context, 0).ok().unwrap();
//!         (driver.cuCtxSetCurrent)(context).ok().unwrap();
//!         (driver.cuMemAlloc_v2)(&mut address, 4).ok().unwrap();
//!         (driver.cuMemcpyHtoD_v2)(address, (&raw const value).cast(), 4).ok().unwrap();
//!         (nccl.ncclCommInitRank)(&mut comm, 2, id, rank).ok().unwrap();
//!         let place = address as *mut _;
//!         (nccl.ncclAllReduce)(place, place, 1, float, sum, comm, stream).ok().unwrap();
//!         (driver.cuMemcpyDtoH_v2)((&raw mut value).cast(), address, 4).ok().unwrap();
//!         (nccl.ncclCommDestroy)(comm).ok().unwrap();
//!     }
//!     value
//! };
//! let other = std::thread::spawn(move || rank(1));
//! assert_eq!((rank(0), other.join().unwrap()), (3.0, 3.0));
//! # Ok::<(), retrograph_nccl_sys::ncclResult_t>(())
//! ```
//!
//! # Fault model
//!
//! The simulator behaves as badly as NCCL may:
//!
//! - A collective whose peer is missing hangs until `ncclCommAbort`, also if the peer has died: on
//!   NVLink nothing else ends it. Results are then undefined, here the poison of fresh memory.
//! - Ranks that disagree on an operation, a size or an order get an asynchronous error that names
//!   what each of them asked for. Hardware hangs, or computes something else.
//! - Destroying a communicator that graphs still use is an error. NCCL waits for these graphs.
//! - [`inject`] makes a rank fail, be late, disagree or die at a given collective.
//!
//! Sums are added in the order of a ring that starts at another rank for each block, as NCCL's are.
//!
//! # Limits
//!
//! Reductions are sums of f32, f64 and bf16. One thread drives one rank: communicators are not made
//! in a group. After two minutes without an abort, a hanging collective gives up.

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
pub use comm::live;
pub use fault::{Fault, FaultKind, inject};
