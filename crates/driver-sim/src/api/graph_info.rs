//! Asking graph templates and nodes what they are.

use retrograph_driver_sys::*;

use super::put_list;
use crate::argument::{Call, Out};
use crate::refusal::invalid;
use crate::state::{NodeKind, State};
use crate::work::Operation;

/// Writes nodes in the way that the driver does: a list without room is refused.
fn put_nodes(list: &[CUgraphNode], nodes: Out<CUgraphNode>, count: Out<usize>) -> Call {
    if !nodes.is_null() && count.get()? == 0 {
        return Err(invalid("graph.no_room"));
    }
    put_list(list, nodes, count, CUgraphNode::NULL)
}

impl State {
    pub(crate) fn cuGraphGetNodes(
        &mut self,
        graph: CUgraph,
        nodes: Out<CUgraphNode>,
        count: Out<usize>,
    ) -> Call {
        let graph = self.given_graph(graph)?;
        count.demand()?;
        let found = self.graphs.get(graph)?.nodes.clone();
        put_nodes(&found, nodes, count)
    }

    pub(crate) fn cuGraphGetRootNodes(
        &mut self,
        graph: CUgraph,
        nodes: Out<CUgraphNode>,
        count: Out<usize>,
    ) -> Call {
        let graph = self.given_graph(graph)?;
        count.demand()?;
        let mut roots = self.graphs.get(graph)?.nodes.clone();
        roots.retain(|node| self.nodes.get(*node).is_ok_and(|node| node.dependencies.is_empty()));
        // The root that was added last comes first.
        roots.reverse();
        put_nodes(&roots, nodes, count)
    }

    pub(crate) fn cuGraphNodeGetType(
        &mut self,
        node: CUgraphNode,
        kind: Out<CUgraphNodeType>,
    ) -> Call {
        let node = self.given_node(node)?;
        kind.demand()?;
        kind.put(self.nodes.get(node)?.kind.node_type())
    }

    pub(crate) fn cuGraphKernelNodeGetParams_v2(
        &mut self,
        node: CUgraphNode,
        parameters: Out<CUDA_KERNEL_NODE_PARAMS>,
    ) -> Call {
        let node = self.given_node(node)?;
        parameters.demand()?;
        let found = self.nodes.get_mut(node)?;
        let pointers = found.pointers.as_mut_ptr();
        match &found.kind {
            NodeKind::Operation(Operation::Launch(launch)) => {
                let mut given = launch.node_parameters(pointers);
                let function = self.functions.get(launch.function);
                let device = function.ok().map(|function| function.device);
                given.ctx = device.and_then(|at| self.devices[at].context).unwrap_or_default();
                parameters.put(given)
            }
            _ => Err(invalid("graph.another_kind")),
        }
    }

    pub(crate) fn cuGraphMemcpyNodeGetParams(
        &mut self,
        node: CUgraphNode,
        parameters: Out<CUDA_MEMCPY3D>,
    ) -> Call {
        let node = self.given_node(node)?;
        parameters.demand()?;
        match &self.nodes.get(node)?.kind {
            NodeKind::Operation(Operation::Copy(copy)) => parameters.put(*copy.given),
            _ => Err(invalid("graph.another_kind")),
        }
    }

    pub(crate) fn cuGraphMemsetNodeGetParams(
        &mut self,
        node: CUgraphNode,
        parameters: Out<CUDA_MEMSET_NODE_PARAMS>,
    ) -> Call {
        let node = self.given_node(node)?;
        parameters.demand()?;
        match &self.nodes.get(node)?.kind {
            NodeKind::Operation(Operation::Fill(fill)) => parameters.put(fill.0),
            _ => Err(invalid("graph.another_kind")),
        }
    }

    pub(crate) fn cuGraphHostNodeGetParams(
        &mut self,
        node: CUgraphNode,
        parameters: Out<CUDA_HOST_NODE_PARAMS>,
    ) -> Call {
        let node = self.given_node(node)?;
        parameters.demand()?;
        match &self.nodes.get(node)?.kind {
            NodeKind::Operation(Operation::Host(call)) => parameters.put(call.node_parameters()),
            _ => Err(invalid("graph.another_kind")),
        }
    }

    pub(crate) fn cuGraphEventRecordNodeGetEvent(
        &mut self,
        node: CUgraphNode,
        event: Out<CUevent>,
    ) -> Call {
        let node = self.given_node(node)?;
        event.demand()?;
        match &self.nodes.get(node)?.kind {
            NodeKind::Record(found) => event.put(*found),
            _ => Err(invalid("graph.another_kind")),
        }
    }

    pub(crate) fn cuGraphEventWaitNodeGetEvent(
        &mut self,
        node: CUgraphNode,
        event: Out<CUevent>,
    ) -> Call {
        let node = self.given_node(node)?;
        event.demand()?;
        match &self.nodes.get(node)?.kind {
            NodeKind::Wait(found) => event.put(*found),
            _ => Err(invalid("graph.another_kind")),
        }
    }

    pub(crate) fn cuGraphChildGraphNodeGetGraph(
        &mut self,
        node: CUgraphNode,
        graph: Out<CUgraph>,
    ) -> Call {
        let node = self.given_node(node)?;
        graph.demand()?;
        match &self.nodes.get(node)?.kind {
            NodeKind::Child(child) => graph.put(*child),
            _ => Err(invalid("graph.another_kind")),
        }
    }
}
