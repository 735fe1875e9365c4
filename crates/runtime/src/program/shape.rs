//! Sizes of a graph as read back from the driver.

use retrograph_driver::{Graph, Result};

/// Sizes of a graph, as read back from the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) nodes: usize,
    pub(super) edges: usize,
    /// Nodes on the longest path.
    pub(super) depth: usize,
}

impl Shape {
    pub(super) fn of(graph: &Graph) -> Result<Self> {
        let held = graph.ordered()?;
        let (nodes, edges, depth) = (held.nodes.len(), held.edges.len(), held.depth);
        Ok(Self { nodes, edges, depth })
    }
}
