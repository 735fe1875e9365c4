//! Conditional nodes and the handles by which kernels control them.

use std::sync::Arc;

use retrograph_driver_sys::{CUgraph, CUgraphConditionalHandle, CUgraphConditionalNodeType};

use super::{NodeKind, State};
use crate::refusal::Refusal;

/// A node that runs its bodies depending on the value of a handle.
#[derive(Clone)]
pub(crate) struct Conditional {
    pub(crate) handle: CUgraphConditionalHandle,
    pub(crate) r#type: CUgraphConditionalNodeType,
    /// The bodies, which the node owns. The program holds a pointer to this list.
    pub(crate) bodies: Arc<[CUgraph]>,
}

impl State {
    /// Returns the outermost graph that contains a graph, and the nesting depth. The outermost
    /// graph owns the handles of all nested conditional nodes.
    pub(crate) fn root_of(&self, mut graph: CUgraph) -> Result<(CUgraph, usize), Refusal> {
        let mut depth = 0;
        while let Some(node) = self.graphs.get(graph)?.within {
            (graph, depth) = (self.nodes.get(node)?.graph, depth + 1);
        }
        Ok((graph, depth))
    }

    /// Whether a graph is a body, or it or a nested graph has conditional nodes.
    pub(crate) fn is_conditional(&self, graph: CUgraph) -> Result<bool, Refusal> {
        let is_conditional = |kind: &NodeKind| matches!(kind, NodeKind::Conditional(_));
        let node = self.graphs.get(graph)?.within.and_then(|node| self.nodes.get(node).ok());
        let is_body = node.is_some_and(|node| is_conditional(&node.kind));
        Ok(is_body || self.any_node(graph, &is_conditional)?)
    }
}
