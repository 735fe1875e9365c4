//! Hand-written FFI to the CUDA driver API: types by area of cuda.h and one table of functions,
//! loaded at run time.
//!
//! Nothing is linked. A program that uses this crate builds and starts on a machine without a GPU,
//! a driver or a CUDA toolkit, and looks for them at run time:
//!
//! ```
//! use retrograph_driver_sys::{CUresult, DriverTable};
//!
//! fn device_count(driver: &DriverTable) -> Result<i32, CUresult> {
//!     let mut count = 0;
//!     // SAFETY: 0 is the only flag value, and the pointer is valid during the call.
//!     unsafe {
//!         (driver.cuInit)(0).ok()?;
//!         (driver.cuDeviceGetCount)(&mut count).ok()?;
//!     }
//!     Ok(count)
//! }
//!
//! match DriverTable::load() {
//!     Ok(driver) => println!("{:?} devices", device_count(&driver)),
//!     Err(error) => println!("{error}"),
//! }
//! ```
//!
//! - [`DriverTable`] has one field per function under its exact exported symbol; functions that
//!   only newer drivers export are `Option`.
//! - [`driver_functions!`] passes the same list to any macro: the simulated driver declares its
//!   functions with it.
//! - [`CUresult`] and the enumerations are integers with constants, so that unknown values of a
//!   newer driver are preserved.
//! - Handles are distinct pointer-sized newtypes.
//! - Using an optional function that the driver lacks fails with [`MissingFunction`], which names
//!   the function and the oldest driver that has it.
//! - [`constants`] and [`layouts`] list the rest as values, for tools.
//!
//! Not included: safe wrappers (see the crate `retrograph-driver`), the runtime API (`cudaMalloc`
//! and the like), textures, surfaces, graphics interop, inter-process handles except for pools.

// Types, fields and functions carry the names of cuda.h, so that its documentation applies.
#![allow(non_camel_case_types, non_snake_case)]

mod array;
mod capture;
pub mod constants;
mod context;
mod copy;
mod coredump;
mod device;
mod enumeration;
mod event;
mod function;
mod functions;
mod graph;
mod handle;
#[cfg(feature = "cuda-driver-sys")]
pub mod interop;
mod jit;
mod launch;
mod layout;
pub mod layouts;
mod library;
mod load;
#[doc(hidden)]
pub mod loader;
mod location;
mod managed;
mod memory;
mod memory_operation;
mod missing;
mod occupancy;
mod pool;
mod resource;
mod result;
mod stream;
mod structure;
mod symbol;
mod table;
mod tensor_map;
mod virtual_memory;

#[doc(no_inline)]
pub use std::ffi::{c_char, c_void};

pub use array::*;
pub use capture::*;
pub use context::*;
pub use copy::*;
pub use coredump::*;
pub use device::*;
pub use event::*;
pub use function::*;
pub use graph::*;
pub use handle::*;
pub use jit::*;
pub use launch::*;
pub use library::*;
pub use load::{LIBRARY_NAMES, LoadError, MIN_VERSION};
pub use location::*;
pub use managed::*;
pub use memory::*;
pub use memory_operation::*;
pub use missing::MissingFunction;
pub use occupancy::*;
pub use pool::*;
pub use resource::*;
pub use result::CUresult;
pub use stream::*;
pub use symbol::*;
pub use table::DriverTable;
pub use tensor_map::*;
pub use virtual_memory::*;
