//! The executor of PTX: 32 lanes of a warp at a time.
//!
//! [`Program::decode`] turns an entry of a module into the form that the interpreter runs, and
//! refuses what it does not implement. [`launch`] runs a program over a grid on a [`Memory`].
//!
//! What PTX leaves undefined stops with a [`Fault`] where it can be told from what is defined: an
//! access outside of the allocation, a misaligned address, a barrier that not all threads reach, a
//! shuffle from a lane that takes no part. Shared and local memory start as poison.
//!
//! Absent on purpose: timing, races between threads of a block other than by the order of warps,
//! asynchronous copies and matrix instructions.
//!
//! [`Memory`]: crate::memory::Memory

mod access;
mod atomics;
mod block;
mod convert;
mod cross;
mod decode;
mod fault;
mod float;
mod grid;
mod integer;
mod interpreter;
mod lanes;
mod layout;
mod program;
mod rounding;
mod site;
#[cfg(test)]
mod tests;
mod vector;
mod warp;
mod words;

pub use fault::{DecodeError, Fault, FaultKind, FaultSite};
pub use grid::{Launch, LaunchStats, launch};
pub use program::Program;
