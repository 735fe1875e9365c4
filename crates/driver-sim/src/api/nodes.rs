//! Adding nodes to graph templates, and removing them.

use retrograph_driver_sys::*;

use super::launch::Request;
use crate::argument::{Call, In, Out};
use crate::refusal::{Refusal, invalid, refuse};
use crate::state::{NodeKind, Owner, State};
use crate::work::{Fill, HostCall, HostTarget, Operation};

/// Where a new node goes and what it depends on.
pub(super) struct Place {
    pub(super) node: Out<CUgraphNode>,
    pub(super) graph: CUgraph,
    pub(super) dependencies: In<CUgraphNode>,
    pub(super) count: usize,
}

impl State {
    /// Checks a place; gives what the node is to depend on.
    pub(super) fn check_place(&mut self, place: &Place) -> Result<Vec<CUgraphNode>, Refusal> {
        place.node.demand()?;
        let graph = self.given_graph(place.graph)?;
        let dependencies = place.dependencies.list(place.count)?;
        for (index, dependency) in dependencies.iter().enumerate() {
            let dependency = self.given_node(*dependency)?;
            if self.nodes.get(dependency)?.graph != graph {
                return Err(invalid("graph.foreign"));
            }
            if dependencies[..index].contains(&dependency) {
                return Err(invalid("graph.twice"));
            }
        }
        Ok(dependencies)
    }

    /// Adds a node where it was asked for.
    pub(super) fn add(&mut self, place: &Place, kind: NodeKind) -> Call {
        let dependencies = self.check_place(place)?;
        let node = self.add_node(place.graph, dependencies, kind)?;
        place.node.put(node)
    }

    /// What a kernel node does.
    pub(super) fn kernel_kind(
        &mut self,
        given: &CUDA_KERNEL_NODE_PARAMS,
    ) -> Result<NodeKind, Refusal> {
        let launch = self.launch_of(&Request::of_node(given))?;
        Ok(NodeKind::Operation(Operation::Launch(launch)))
    }

    /// What a copy node does.
    pub(super) fn copy_kind(
        &mut self,
        given: &CUDA_MEMCPY3D,
        context: CUcontext,
    ) -> Result<NodeKind, Refusal> {
        self.check_node_context(context)?;
        Ok(NodeKind::Operation(Operation::Copy(self.lasting_copy(given)?)))
    }

    /// What a fill node does.
    pub(super) fn fill_kind(
        &mut self,
        given: &CUDA_MEMSET_NODE_PARAMS,
        context: CUcontext,
    ) -> Result<NodeKind, Refusal> {
        let fill = Fill(*given);
        self.check_node_context(context)?;
        self.check_fill(&fill)?;
        Ok(NodeKind::Operation(Operation::Fill(fill)))
    }

    /// What a host node does.
    pub(super) fn host_kind(&mut self, given: &CUDA_HOST_NODE_PARAMS) -> Result<NodeKind, Refusal> {
        let function = given.r#fn.ok_or(invalid("host.null"))?;
        let call = HostCall { target: HostTarget::Function(function), data: given.userData };
        Ok(NodeKind::Operation(Operation::Host(call)))
    }

    /// What a node that records an event does.
    pub(super) fn record_kind(&mut self, event: CUevent) -> Result<NodeKind, Refusal> {
        self.given_event(event).map(NodeKind::Record)
    }

    /// What a node that waits for an event does.
    pub(super) fn wait_kind(&mut self, event: CUevent) -> Result<NodeKind, Refusal> {
        self.given_event(event).map(NodeKind::Wait)
    }

    fn given_event(&mut self, event: CUevent) -> Result<CUevent, Refusal> {
        match self.events.contains(event) {
            true => Ok(event),
            false if event.is_null() => Err(invalid("graph.null_event")),
            false => Err(self.undefined("the event does not exist, or does not any more")),
        }
    }

    /// Copies and fills name the context that they run in.
    pub(super) fn check_node_context(&mut self, context: CUcontext) -> Call {
        let known = self.devices.iter().any(|device| device.context == Some(context));
        if known && !context.is_null() {
            Ok(())
        } else {
            Err(refuse(CUresult::CUDA_ERROR_INVALID_CONTEXT, "graph.context"))
        }
    }

    pub(crate) fn cuGraphAddKernelNode_v2(
        &mut self,
        node: Out<CUgraphNode>,
        graph: CUgraph,
        dependencies: In<CUgraphNode>,
        count: usize,
        parameters: In<CUDA_KERNEL_NODE_PARAMS>,
    ) -> Call {
        let place = Place { node, graph, dependencies, count };
        self.check_place(&place)?;
        let kind = self.kernel_kind(&parameters.get()?)?;
        self.add(&place, kind)
    }

    pub(crate) fn cuGraphAddMemcpyNode(
        &mut self,
        node: Out<CUgraphNode>,
        graph: CUgraph,
        dependencies: In<CUgraphNode>,
        count: usize,
        parameters: In<CUDA_MEMCPY3D>,
        context: CUcontext,
    ) -> Call {
        let place = Place { node, graph, dependencies, count };
        self.check_place(&place)?;
        let kind = self.copy_kind(&parameters.get()?, context)?;
        self.add(&place, kind)
    }

    pub(crate) fn cuGraphAddMemsetNode(
        &mut self,
        node: Out<CUgraphNode>,
        graph: CUgraph,
        dependencies: In<CUgraphNode>,
        count: usize,
        parameters: In<CUDA_MEMSET_NODE_PARAMS>,
        context: CUcontext,
    ) -> Call {
        let place = Place { node, graph, dependencies, count };
        self.check_place(&place)?;
        let kind = self.fill_kind(&parameters.get()?, context)?;
        self.add(&place, kind)
    }

    pub(crate) fn cuGraphAddHostNode(
        &mut self,
        node: Out<CUgraphNode>,
        graph: CUgraph,
        dependencies: In<CUgraphNode>,
        count: usize,
        parameters: In<CUDA_HOST_NODE_PARAMS>,
    ) -> Call {
        let place = Place { node, graph, dependencies, count };
        self.check_place(&place)?;
        let kind = self.host_kind(&parameters.get()?)?;
        self.add(&place, kind)
    }

    pub(crate) fn cuGraphAddEmptyNode(
        &mut self,
        node: Out<CUgraphNode>,
        graph: CUgraph,
        dependencies: In<CUgraphNode>,
        count: usize,
    ) -> Call {
        self.add(&Place { node, graph, dependencies, count }, NodeKind::Empty)
    }

    pub(crate) fn cuGraphAddEventRecordNode(
        &mut self,
        node: Out<CUgraphNode>,
        graph: CUgraph,
        dependencies: In<CUgraphNode>,
        count: usize,
        event: CUevent,
    ) -> Call {
        let place = Place { node, graph, dependencies, count };
        self.check_place(&place)?;
        let kind = self.record_kind(event)?;
        self.add(&place, kind)
    }

    pub(crate) fn cuGraphAddEventWaitNode(
        &mut self,
        node: Out<CUgraphNode>,
        graph: CUgraph,
        dependencies: In<CUgraphNode>,
        count: usize,
        event: CUevent,
    ) -> Call {
        let place = Place { node, graph, dependencies, count };
        self.check_place(&place)?;
        let kind = self.wait_kind(event)?;
        self.add(&place, kind)
    }

    pub(crate) fn cuGraphAddChildGraphNode(
        &mut self,
        node: Out<CUgraphNode>,
        graph: CUgraph,
        dependencies: In<CUgraphNode>,
        count: usize,
        child: CUgraph,
    ) -> Call {
        self.add_child(&Place { node, graph, dependencies, count }, child)
    }

    /// Adds a node with a copy of a graph inside.
    pub(super) fn add_child(&mut self, place: &Place, child: CUgraph) -> Call {
        self.check_place(place)?;
        let child = self.given_graph(child)?;
        if child == place.graph {
            return Err(invalid("graph.inside_itself"));
        }
        if self.has_memory_nodes(child)? {
            return Err(invalid("graph_memory.child"));
        }
        let copy = self.clone_graph(child, Owner::Node)?;
        self.add(place, NodeKind::Child(copy))
    }

    pub(crate) fn cuGraphDestroyNode(&mut self, node: CUgraphNode) -> Call {
        let node = self.given_node(node)?;
        if self.is_captured_into(self.nodes.get(node)?.graph) {
            return Err(refuse(CUresult::CUDA_ERROR_ILLEGAL_STATE, "capture.graph_in_use"));
        }
        if self.nodes.get(node)?.kind.is_memory() {
            return Err(invalid("graph_memory.destroy_node"));
        }
        let found = self.nodes.remove(node)?;
        let template = self.graphs.get_mut(found.graph)?;
        template.nodes.retain(|other| *other != node);
        for other in template.nodes.clone() {
            let other = self.nodes.get_mut(other)?;
            other.dependencies.retain(|dependency| *dependency != node);
            other.ports.remove(&node);
        }
        match found.kind {
            NodeKind::Child(child) => self.drop_graph(child),
            _ => Ok(()),
        }
    }
}
