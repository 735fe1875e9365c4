//! Copying a graph and removing edges, to profile a graph without changing it.

use retrograph_driver_sys::{CUgraph, CUgraphNode};

use super::template::{Graph, Node};
use crate::error::Result;

impl Graph {
    /// Copies the graph with its owners, and returns the counterpart of each of `nodes`.
    ///
    /// # Errors
    /// If a node belongs to another graph, or the driver fails, for example for graphs with memory
    /// nodes.
    pub fn duplicate(&self, nodes: &[Node]) -> Result<(Self, Vec<Node>)> {
        self.check_nodes(nodes)?;
        self.context.bind()?;
        let mut raw = CUgraph::NULL;
        // SAFETY: the graph lives, and the out pointer is valid.
        unsafe { call!(self.context, cuGraphClone(&mut raw, self.raw)) }?;
        // SAFETY: the copy was just made and nobody else has it; it accesses the same memory.
        let mut copy = unsafe { Self::from_raw(&self.context, raw) };
        copy.memory_nodes_allowed = self.memory_nodes_allowed;
        copy.prioritized = self.prioritized;
        copy.owners = self.owners.clone();
        let counterpart = |node: &Node| {
            let mut found = CUgraphNode::NULL;
            // SAFETY: the node is of this graph, of which the copy is a clone.
            unsafe { call!(self.context, cuGraphNodeFindInClone(&mut found, node.raw, raw)) }?;
            Ok(copy.node(found))
        };
        let nodes = nodes.iter().map(counterpart).collect::<Result<_>>()?;
        Ok((copy, nodes))
    }

    /// Removes edges. The caller must add others that order conflicting nodes as before.
    ///
    /// # Errors
    /// If a node belongs to another graph, an edge does not exist, or the driver fails.
    pub(crate) fn remove_edges(&mut self, edges: &[(Node, Node)]) -> Result<()> {
        let (from, to): (Vec<Node>, Vec<Node>) = edges.iter().copied().unzip();
        self.check_nodes(&from)?;
        self.check_nodes(&to)?;
        self.context.bind()?;
        if edges.is_empty() {
            return Ok(());
        }
        let raw = |nodes: Vec<Node>| nodes.into_iter().map(Node::raw).collect::<Vec<_>>();
        let (from, to) = (raw(from), raw(to));
        // SAFETY: all nodes belong to this graph, and both lists have this length.
        unsafe {
            call!(
                self.context,
                cuGraphRemoveDependencies(self.raw, from.as_ptr(), to.as_ptr(), edges.len())
            )
        }
    }
}
