//! Queries of graph templates and their nodes.

use retrograph_driver_sys::*;

use super::put_list;
use crate::argument::{Call, Out};
use crate::refusal::{Rule, invalid};
use crate::state::{Function, NodeKind, State};
use crate::work::Operation;

/// Writes nodes in the format of the driver. A buffer with a capacity of 0 is an error.
fn put_nodes(list: &[CUgraphNode], nodes: Out<CUgraphNode>, count: Out<usize>) -> Call {
    if !nodes.is_null() && count.get()? == 0 {
        return Err(invalid(Rule::GraphNoRoom));
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
        let graph = self.known_graph(graph)?;
        let found = self.graphs.get(graph)?.nodes.clone();
        put_nodes(&found, nodes, count)
    }

    pub(crate) fn cuGraphGetRootNodes(
        &mut self,
        graph: CUgraph,
        nodes: Out<CUgraphNode>,
        count: Out<usize>,
    ) -> Call {
        let graph = self.known_graph(graph)?;
        let mut roots = self.graphs.get(graph)?.nodes.clone();
        roots.retain(|node| self.nodes.get(*node).is_ok_and(|node| node.dependencies.is_empty()));
        // The driver lists roots in reverse order of addition.
        roots.reverse();
        put_nodes(&roots, nodes, count)
    }

    pub(crate) fn cuGraphNodeGetType(
        &mut self,
        node: CUgraphNode,
        kind: Out<CUgraphNodeType>,
    ) -> Call {
        let node = self.known_node(node)?;
        kind.write(self.nodes.get(node)?.kind.node_type())
    }

    pub(crate) fn cuGraphKernelNodeGetParams_v2(
        &mut self,
        node: CUgraphNode,
        parameters: Out<CUDA_KERNEL_NODE_PARAMS>,
    ) -> Call {
        let node = self.known_node(node)?;
        let found = self.nodes.get_mut(node)?;
        // Null without parameters, as on an H200.
        let pointers = match &mut found.parameter_pointers[..] {
            [] => std::ptr::null_mut(),
            pointers => pointers.as_mut_ptr(),
        };
        match &found.kind {
            NodeKind::Operation(Operation::Launch(launch)) => {
                let mut given = launch.node_parameters(pointers);
                if let Ok(function) = self.functions.get(launch.function) {
                    given.ctx = self.devices[function.device].context.unwrap_or_default();
                    given.kern = self.kernel_of(function).unwrap_or_default();
                }
                parameters.write(given)
            }
            _ => Err(invalid(Rule::GraphAnotherKind)),
        }
    }

    /// The kernel of a library that a function belongs to.
    fn kernel_of(&self, function: &Function) -> Option<CUkernel> {
        let library = self.modules.get(function.module).ok()?.library?;
        let name = function.name.to_str().ok()?;
        self.libraries.get(library).ok()?.kernels.get(name).copied()
    }

    /// Writes a property of a node, if its kind has the property.
    fn put_property<T>(
        &mut self,
        node: CUgraphNode,
        output: Out<T>,
        of: impl Fn(&NodeKind) -> Option<T>,
    ) -> Call {
        let node = self.known_node(node)?;
        let found = of(&self.nodes.get(node)?.kind);
        output.write(found.ok_or_else(|| invalid(Rule::GraphAnotherKind))?)
    }

    pub(crate) fn cuGraphMemcpyNodeGetParams(
        &mut self,
        node: CUgraphNode,
        parameters: Out<CUDA_MEMCPY3D>,
    ) -> Call {
        self.put_property(node, parameters, |kind| match kind {
            NodeKind::Operation(Operation::Copy(copy)) => Some(*copy.given),
            _ => None,
        })
    }

    pub(crate) fn cuGraphMemsetNodeGetParams(
        &mut self,
        node: CUgraphNode,
        parameters: Out<CUDA_MEMSET_NODE_PARAMS>,
    ) -> Call {
        self.put_property(node, parameters, |kind| match kind {
            NodeKind::Operation(Operation::Fill(fill)) => Some(fill.given),
            _ => None,
        })
    }

    pub(crate) fn cuGraphHostNodeGetParams(
        &mut self,
        node: CUgraphNode,
        parameters: Out<CUDA_HOST_NODE_PARAMS>,
    ) -> Call {
        self.put_property(node, parameters, |kind| match kind {
            NodeKind::Operation(Operation::Host(call)) => Some(call.node_parameters()),
            _ => None,
        })
    }

    pub(crate) fn cuGraphEventRecordNodeGetEvent(
        &mut self,
        node: CUgraphNode,
        event: Out<CUevent>,
    ) -> Call {
        self.put_property(node, event, |kind| match kind {
            NodeKind::Record(found) => Some(*found),
            _ => None,
        })
    }

    pub(crate) fn cuGraphEventWaitNodeGetEvent(
        &mut self,
        node: CUgraphNode,
        event: Out<CUevent>,
    ) -> Call {
        self.put_property(node, event, |kind| match kind {
            NodeKind::Wait(found) => Some(*found),
            _ => None,
        })
    }

    pub(crate) fn cuGraphChildGraphNodeGetGraph(
        &mut self,
        node: CUgraphNode,
        graph: Out<CUgraph>,
    ) -> Call {
        self.put_property(node, graph, |kind| match kind {
            NodeKind::Child(child) => Some(*child),
            _ => None,
        })
    }
}
