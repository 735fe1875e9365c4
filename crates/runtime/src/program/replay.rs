//! The instantiated graph (exec) of a program, and its template.

use std::time::Duration;

use retrograph_driver::{Graph, GraphExec, Node};

use super::policy::Strategy;
use super::shape::Shape;

/// An instantiated graph.
pub(super) struct Replay {
    pub(super) exec: GraphExec,
    pub(super) strategy: Strategy,
    /// Boxed, since steps do not need it.
    pub(super) made: Box<Made>,
}

/// The template of an exec, and the cost of building it.
pub(super) struct Made {
    /// Kept because node handles of the exec refer to it.
    pub(super) template: Template,
    pub(super) instantiate_time: Duration,
    pub(super) upload_time: Duration,
}

/// A graph, with the nodes of each command.
pub(super) struct Template {
    pub(super) graph: Graph,
    /// The nodes of each command in order: one, or any number for a library call.
    pub(super) groups: Vec<Vec<Node>>,
    pub(super) shape: Shape,
    /// Nodes that library calls added.
    pub(super) library_nodes: usize,
    /// Programmatic edges.
    pub(super) programmatic_edges: usize,
    /// Nodes with a higher priority.
    pub(super) high_priority_nodes: usize,
}
