//! Work of streams and graphs, and its execution.
//!
//! Nothing runs when it is queued. A task runs when a call waits for it or for a task that depends
//! on it. Until then its effects are invisible, because a program on hardware must not rely on them
//! either.

mod attempt;
mod copy;
mod exec;
mod graph_run;
mod host;
mod launch;
mod run;

pub(crate) use attempt::{Attempt, Patience};
pub(crate) use copy::{Copy, End, Fill, Strides};
pub(crate) use exec::{Exec, Plan, PlanConditional, PlanNode, PlanWork};
pub(crate) use graph_run::GraphRun;
pub(crate) use host::{HostCall, HostRun, HostTarget, Hosting};
pub(crate) use launch::{Launch, Parameters};
pub(crate) use run::{Failure, Progress};

use std::sync::Arc;

use retrograph_driver_sys::CUevent;

use crate::timeline::Time;

/// A task of the queue; later tasks have greater numbers.
pub(crate) type TaskId = u64;

/// An operation of a stream or a graph node.
#[derive(Clone)]
pub(crate) enum Operation {
    /// A kernel.
    Launch(Launch),
    /// A copy.
    Copy(Copy),
    /// A fill.
    Fill(Fill),
    /// A call of a host function.
    Host(HostCall),
}

impl Operation {
    /// The operation with the node properties of the operation that it replaces: a launch stays
    /// cooperative, and keeps its cluster size unless the function has one.
    pub(crate) fn in_place_of(mut self, old: &Self) -> Self {
        if let (Self::Launch(new), Self::Launch(old)) = (&mut self, old) {
            new.is_cooperative |= old.is_cooperative;
            if new.cluster == [1; 3] {
                new.cluster = old.cluster;
            }
        }
        self
    }
}

/// The work of a task.
pub(crate) enum Work {
    /// One operation.
    Operation(Operation),
    /// A launch of an instantiated graph.
    Graph(Arc<Plan>),
    /// Frees an allocation.
    Free(u64),
    /// Marks an event as reached.
    Stamp(CUevent),
    /// A host function that runs on its own thread, and the graph launch that it belongs to.
    Hosting(Arc<HostRun>, Option<Box<GraphRun>>),
}

/// Queued work.
pub(crate) struct Task {
    pub(crate) device: usize,
    pub(crate) dependencies: Vec<TaskId>,
    /// The time at which it was queued, on the clock of its thread.
    pub(crate) submitted: Time,
    pub(crate) work: Work,
}
