//! Asking graph templates and nodes what they are.

use retrograph_driver_sys::*;

use super::put_list;
use crate::argument::{Call, Out};
use crate::refusal::{Refusal, invalid};
use crate::state::{NodeKind, State};
use crate::work::Operation;

impl State {
    pub(crate) fn cuGraphGetNodes(
        &mut self,
        graph: CUgraph,
        nodes: Out<CUgraphNode>,
        count: Out<usize>,
    ) -> Call {
        put_list(&self.graphs.get(graph)?.nodes, nodes, count, CUgraphNode::NULL)
    }

    /// The edges of a graph, in the order of the nodes that they lead to.
    pub(super) fn edges(&self, graph: CUgraph) -> Result<Vec<(CUgraphNode, CUgraphNode)>, Refusal> {
        let mut edges = Vec::new();
        for to in &self.graphs.get(graph)?.nodes {
            let dependencies = self.nodes.get(*to)?.dependencies.iter();
            edges.extend(dependencies.map(|from| (*from, *to)));
        }
        Ok(edges)
    }

    pub(crate) fn cuGraphGetEdges(
        &mut self,
        graph: CUgraph,
        from: Out<CUgraphNode>,
        to: Out<CUgraphNode>,
        count: Out<usize>,
    ) -> Call {
        let (starts, ends): (Vec<_>, Vec<_>) = self.edges(graph)?.into_iter().unzip();
        if from.is_null() != to.is_null() {
            return Err(invalid("graph_info.cuGraphGetEdges"));
        }
        let room = if from.is_null() { 0 } else { count.get()? };
        put_list(&starts, from, count, CUgraphNode::NULL)?;
        if to.is_null() {
            return Ok(());
        }
        count.put(room)?;
        put_list(&ends, to, count, CUgraphNode::NULL)
    }

    pub(crate) fn cuGraphGetRootNodes(
        &mut self,
        graph: CUgraph,
        nodes: Out<CUgraphNode>,
        count: Out<usize>,
    ) -> Call {
        let mut roots = self.graphs.get(graph)?.nodes.clone();
        roots.retain(|node| self.nodes.get(*node).is_ok_and(|node| node.dependencies.is_empty()));
        put_list(&roots, nodes, count, CUgraphNode::NULL)
    }

    pub(crate) fn cuGraphNodeGetType(
        &mut self,
        node: CUgraphNode,
        kind: Out<CUgraphNodeType>,
    ) -> Call {
        kind.put(self.nodes.get(node)?.kind.node_type())
    }

    pub(crate) fn cuGraphNodeGetDependencies(
        &mut self,
        node: CUgraphNode,
        dependencies: Out<CUgraphNode>,
        count: Out<usize>,
    ) -> Call {
        put_list(&self.nodes.get(node)?.dependencies, dependencies, count, CUgraphNode::NULL)
    }

    pub(crate) fn cuGraphKernelNodeGetParams_v2(
        &mut self,
        node: CUgraphNode,
        parameters: Out<CUDA_KERNEL_NODE_PARAMS>,
    ) -> Call {
        let found = self.nodes.get_mut(node)?;
        let pointers = found.pointers.as_mut_ptr();
        match &found.kind {
            NodeKind::Operation(Operation::Launch(launch)) => {
                parameters.put(launch.node_parameters(pointers))
            }
            _ => Err(invalid("graph_info.cuGraphKernelNodeGetParams_v2")),
        }
    }

    pub(crate) fn cuGraphMemcpyNodeGetParams(
        &mut self,
        node: CUgraphNode,
        parameters: Out<CUDA_MEMCPY3D>,
    ) -> Call {
        match &self.nodes.get(node)?.kind {
            NodeKind::Operation(Operation::Copy(copy)) => parameters.put(*copy.given),
            _ => Err(invalid("graph_info.cuGraphMemcpyNodeGetParams")),
        }
    }

    pub(crate) fn cuGraphMemsetNodeGetParams(
        &mut self,
        node: CUgraphNode,
        parameters: Out<CUDA_MEMSET_NODE_PARAMS>,
    ) -> Call {
        match &self.nodes.get(node)?.kind {
            NodeKind::Operation(Operation::Fill(fill)) => parameters.put(fill.0),
            _ => Err(invalid("graph_info.cuGraphMemsetNodeGetParams")),
        }
    }

    pub(crate) fn cuGraphChildGraphNodeGetGraph(
        &mut self,
        node: CUgraphNode,
        graph: Out<CUgraph>,
    ) -> Call {
        match &self.nodes.get(node)?.kind {
            NodeKind::Child(child) => graph.put(*child),
            _ => Err(invalid("graph_info.cuGraphChildGraphNodeGetGraph")),
        }
    }
}
