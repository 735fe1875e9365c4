//! The instantiated graph of a program, and the template that it was made from.

use std::time::Duration;

use retrograph_driver::{Graph, GraphExec, Node};

use super::policy::Strategy;
use super::shape::Shape;

/// A graph that is ready to be launched.
pub(super) struct Replay {
    pub(super) exec: GraphExec,
    pub(super) strategy: Strategy,
    /// Apart, since steps do not look at it.
    pub(super) made: Box<Made>,
}

/// How a graph came about.
pub(super) struct Made {
    /// Kept because the exec knows its nodes by those of the graph that it was made from.
    pub(super) template: Template,
    pub(super) instantiate_time: Duration,
    pub(super) upload_time: Duration,
}

/// A graph, and which of its nodes belong to which command.
pub(super) struct Template {
    pub(super) graph: Graph,
    /// One node for each command in order, but for work of libraries, which adds what it likes.
    pub(super) groups: Vec<Vec<Node>>,
    pub(super) shape: Shape,
    /// Nodes that libraries have added.
    pub(super) library_nodes: usize,
    /// Edges that let a kernel start early.
    pub(super) programmatic_edges: usize,
    /// Nodes that go first.
    pub(super) urgent_nodes: usize,
}
