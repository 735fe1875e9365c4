//! Instruction vectors: results of the instructions of the PTX table for edge values, on hardware
//! and on the simulator.
//!
//! [`plan`] generates one instance per combination of form, types and modifiers. An instance is a
//! kernel in which each thread applies the instruction to one case. The name of the instance
//! determines its inputs; `vectors/<opcode>.txt` has the outputs of hardware, one line per
//! instance.
//!
//! Instructions without a result value, such as branches and barriers, are not covered;
//! [`Uncovered`] lists these forms with reasons.

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
