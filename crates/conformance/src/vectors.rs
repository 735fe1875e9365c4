//! Instruction vectors: what each instruction of the PTX table does to edge values, on hardware
//! and on the simulator.
//!
//! For every form of the table, [`plan`] makes instances: one for each choice of types and
//! modifiers. An instance becomes a kernel in which each thread applies the instruction to one
//! case. The inputs of the cases follow from the name of the instance; the outputs of hardware lie
//! in `vectors/<opcode>.txt`, one line for each instance.
//!
//! Not covered: instructions whose effect is not a value, such as jumps and barriers; the
//! list of [`Uncovered`] forms says which and why.

mod file;
mod inputs;
mod instance;
mod kernel;
mod plan;
mod run;
mod tolerance;
mod verify;

pub use file::{Recorded, VectorFile};
pub use instance::Instance;
pub use kernel::module;
pub use plan::{Plan, Uncovered, plan};
pub use run::{RunError, run};
pub use tolerance::{Bound, bound, measure};
pub use verify::{Report, unsupported, verify};
