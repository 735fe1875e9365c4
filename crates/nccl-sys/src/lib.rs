//! Hand-written FFI to NCCL, NVIDIA's library for collectives between GPUs: one table of functions,
//! loaded at run time.
//!
//! Nothing is linked. A program that uses this crate builds and starts on a machine without NCCL,
//! and loads it when needed:
//!
//! ```
//! use retrograph_nccl_sys::NcclTable;
//!
//! match NcclTable::load() {
//!     Ok(nccl) => println!("NCCL {}", nccl.version),
//!     Err(error) => println!("{error}"), // lists what was tried, and how to get NCCL
//! }
//! ```
//!
//! - [`NcclTable`] has one field per function under its exact exported symbol.
//! - [`nccl_functions!`] passes the same list to any macro: the simulated NCCL declares its
//!   functions with it.
//! - [`ncclResult_t`] and the enumerations are integers with constants, so that unknown values of a
//!   newer NCCL are preserved.
//! - Streams are [`CUstream`]: `cudaStream_t` is the same type.
//! - Functions of newer versions are `Option`.
//!
//! Not included: safe wrappers (see the crate `retrograph-runtime`), point-to-point calls, the
//! device API.

// Types, fields and functions carry the names of nccl.h, so that its documentation applies.
#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals)]

mod functions;
mod load;
mod result;
mod table;
mod types;

#[doc(no_inline)]
pub use std::ffi::{c_char, c_void};

pub use load::{LIBRARY_NAMES, LoadError, MIN_VERSION};
pub use result::ncclResult_t;
#[doc(no_inline)]
pub use retrograph_driver_sys::CUstream;
pub use table::NcclTable;
pub use types::*;

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
