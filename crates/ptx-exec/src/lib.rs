//! The PTX executor, which runs the 32 lanes of a warp together.
//!
//! [`Program::decode`] decodes an entry of a module to typed operations and rejects unsupported
//! instructions. [`launch`] runs a program over a grid on a [`Memory`].
//!
//! ```
//! use retrograph_ptx_exec::{Launch, Program, launch};
//! use retrograph_ptx_exec::memory::Memory;
//! use retrograph_ptx::SmTarget;
//! use retrograph_ptx::build::{Kernel, ModuleBuilder};
//!
//! let double = Kernel::build("double", |k| {
//!     let (x, i) = (k.pointer::<f32>("x"), k.tid_x());
//!     x.store(i, x.load(i) * 2.0f32);
//! });
//! let module = ModuleBuilder::new(SmTarget::portable(80)).entry(double).build();
//! let program = Program::decode(&module, "double", &|_| None)?;
//!
//! let memory = Memory::new(1 << 20);
//! let x = memory.alloc(8 * 4)?;
//! memory.fill(x, &1.5f32.to_le_bytes(), 8)?;
//! let parameters = x.to_le_bytes();
//! let request = Launch { block: [8, 1, 1], parameters: &parameters, ..Launch::default() };
//! launch(&program, &request, &memory)?;
//! let mut last = [0; 4];
//! memory.read(x + 28, &mut last)?;
//! assert_eq!(f32::from_le_bytes(last), 3.0);
//!
//! // The ninth thread accesses memory out of bounds.
//! let fault = launch(&program, &Launch { block: [9, 1, 1], ..request }, &memory).unwrap_err();
//! assert_eq!(fault.site.thread, [8, 0, 0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Detectable undefined behaviour stops the kernel with a [`Fault`]: an access outside any
//! allocation, a misaligned address, a barrier that not all threads reach, a shuffle from an
//! inactive lane. Shared and local memory start as poison. [`Launch::races`] detects races between
//! threads:
//!
//! ```
//! # use retrograph_ptx_exec::{FaultKind, Launch, Program, launch};
//! # use retrograph_ptx_exec::memory::Memory;
//! # use retrograph_ptx::SmTarget;
//! # use retrograph_ptx::build::{Kernel, ModuleBuilder};
//! // Two warps write different values to the same word.
//! let kernel = Kernel::build("race", |k| k.pointer::<u32>("x").store(k.constant(0), k.tid_x()));
//! let module = ModuleBuilder::new(SmTarget::portable(80)).entry(kernel).build();
//! let program = Program::decode(&module, "race", &|_| None)?;
//! let memory = Memory::new(1 << 20);
//! let parameters = memory.alloc(4)?.to_le_bytes();
//! let request =
//!     Launch { block: [64, 1, 1], parameters: &parameters, races: true, ..Launch::default() };
//! let fault = launch(&program, &request, &memory).unwrap_err();
//! assert!(matches!(fault.kind, FaultKind::Race { .. }));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Timing is not modelled.
//!
//! [`Memory`]: crate::memory::Memory

mod access;
mod async_copy;
mod atomics;
mod barrier;
mod block;
mod bulk;
mod bytes;
mod call_stack;
mod cluster;
mod compare;
mod conditional;
mod convert;
mod cross;
mod decode;
mod double;
mod fault;
mod float;
mod grid;
mod half;
mod integer;
mod interpreter;
mod lane_function;
mod layout;
mod matrix;
pub mod memory;
mod narrow;
mod operation;
mod printf;
mod program;
mod races;
mod registers;
mod rounding;
mod site;
pub mod tensor_map;
mod undefined;
mod unfenced;
mod warp;
mod warpgroup;
mod words;

pub use conditional::ConditionalValues;
pub use decode::{GET_GRID_HANDLE, SYNCHRONIZE_GRID};
pub use fault::{DecodeError, Fault, FaultKind, FaultSite, NotStarted, RacingAccess};
pub use grid::{Launch, LaunchStats, launch};
pub use interpreter::HostIsa;
pub use program::Program;
pub use undefined::{ProxyMisuse, Undefined};

/// The crate of modules, types and state spaces.
pub use retrograph_ptx as ptx;

/// Runs the example of the README as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
