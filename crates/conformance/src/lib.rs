//! Conformance scenarios: driver calls as data, recorded on hardware and replayed on the simulator.
//!
//! A scenario is a list of driver calls with symbolic handles and threads. Running it yields one
//! outcome per step: the code and the outputs of the call, in a form that does not depend on the
//! run. [`record`] runs scenarios on hardware and writes traces; [`replay`] runs them on the
//! simulator and compares with the traces. `scenarios/README.md` describes the language.

mod arena;
mod encode;
mod error;
mod functions;
mod host;
mod names;
mod reflect;
mod runner;
mod scenario;
mod show;
mod threads;
mod trace;
mod types;
mod variables;

pub mod record;
pub mod replay;
pub mod vectors;

pub use error::{Location, ScenarioError};
pub use runner::{Ending, Outcome, Run, run};
pub use scenario::{Library, Scenario, Step};
pub use trace::{Head, Trace, TraceFile};

/// Folders of scenarios, traces and images.
#[derive(Clone, Debug)]
pub struct Folders {
    /// Scenario sources, `<area>/<topic>.txt`.
    pub scenarios: std::path::PathBuf,
    /// Recorded traces under the same names.
    pub traces: std::path::PathBuf,
    /// Images that scenarios load.
    pub images: std::path::PathBuf,
    /// Recorded results of instructions, `<opcode>.txt`.
    pub vectors: std::path::PathBuf,
    /// The list of scenarios in which the simulator differs, with reasons.
    pub differences: std::path::PathBuf,
    /// The list of scenarios and scenario files that were not recorded yet.
    pub unrecorded: std::path::PathBuf,
}

impl Folders {
    /// All of them under one folder.
    pub fn under(root: &std::path::Path) -> Self {
        Self {
            scenarios: root.join("scenarios"),
            traces: root.join("traces"),
            images: root.join("images"),
            vectors: root.join("vectors"),
            differences: root.join("differences.txt"),
            unrecorded: root.join("unrecorded.txt"),
        }
    }
}
