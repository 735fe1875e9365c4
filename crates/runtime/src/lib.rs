//! Passes as values, run eagerly or as one replayable CUDA graph.

#[macro_use]
mod macros;

pub mod capture;
pub mod context;
pub mod driver;
pub mod error;
pub mod event;
pub mod graph;
pub mod launch;
pub mod memory;
pub mod modules;
pub mod pass;
pub mod program;
mod release;
pub mod stream;

pub use capture::{CaptureError, CaptureMode, Capturing, FirstFailure};
pub use context::{Context, DeviceIndex, DeviceInfo};
pub use driver::{Driver, DriverVersion, Origin};
pub use error::{CallError, Error};
pub use event::Event;
pub use graph::{DeviceCopy, DeviceFill, Graph, GraphExec, Node, NodeKind, UpdateOutcome};
pub use launch::{KernelArguments, KernelLaunch, LaunchGeometry};
pub use memory::{DeviceBuffer, PinnedBuffer};
pub use modules::{Function, JitAfterWarm, ModuleCache, PrewarmError, Progress, WarmModules};
pub use pass::{
    Buffer, BufferId, BufferKind, ControlError, Controls, CustomImage, CustomLaunch, Edge, Edges,
    Hazard, MemoryPlan, OpId, Operation, OperationKind, Pass, PassError, Requirements, Reuse,
    Slice,
};
pub use program::{
    Admission, AdmitError, Bindings, BuildError, BuildOptions, EdgeMode, Policy, Program, Report,
    StepError, StepOutcome, Strategy,
};
pub use stream::Stream;

/// Keeps something alive: what a graph touches must live as long as the graph.
pub type Owner = std::sync::Arc<dyn std::any::Any + Send + Sync>;

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
