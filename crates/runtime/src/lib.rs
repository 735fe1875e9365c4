//! Passes as values, run eagerly or as one replayable CUDA graph.

pub mod pass;

pub use pass::{
    Buffer, BufferId, BufferKind, ControlError, Controls, CustomImage, CustomLaunch, Edge, Edges,
    Hazard, MemoryPlan, OpId, Operation, OperationKind, Pass, PassError, Requirements, Reuse, Slice,
};
