//! Addition and removal of nodes of graph templates.

use retrograph_driver_sys::*;

use crate::argument::{Call, In, Out};
use crate::refusal::{Refusal, Rule, invalid, refuse};
use crate::state::{NodeKind, Owner, State};

/// The graph, dependencies and output of a call that adds a node.
pub(super) struct NewNode {
    pub(super) node: Out<CUgraphNode>,
    pub(super) graph: CUgraph,
    pub(super) dependencies: In<CUgraphNode>,
    pub(super) count: usize,
}

impl State {
    /// Checks the graph and the dependencies of a new node, and returns the dependencies.
    pub(super) fn check_new_node(
        &mut self,
        new_node: &NewNode,
    ) -> Result<Vec<CUgraphNode>, Refusal> {
        new_node.node.require()?;
        let graph = self.known_graph(new_node.graph)?;
        let dependencies = new_node.dependencies.list(new_node.count)?;
        for (index, dependency) in dependencies.iter().enumerate() {
            let dependency = self.known_node(*dependency)?;
            if self.nodes.get(dependency)?.graph != graph {
                return Err(invalid(Rule::GraphNodeOfOtherGraph));
            }
            if dependencies[..index].contains(&dependency) {
                return Err(invalid(Rule::GraphTwice));
            }
        }
        Ok(dependencies)
    }

    /// Adds a node. `kind` runs after the checks of the graph and its dependencies.
    pub(super) fn add(
        &mut self,
        new_node: &NewNode,
        kind: impl FnOnce(&mut Self) -> Result<NodeKind, Refusal>,
    ) -> Call {
        let dependencies = self.check_new_node(new_node)?;
        let kind = kind(self)?;
        let node = self.add_node(new_node.graph, dependencies, kind)?;
        new_node.node.write(node)
    }

    pub(crate) fn cuGraphAddKernelNode_v2(
        &mut self,
        node: Out<CUgraphNode>,
        graph: CUgraph,
        dependencies: In<CUgraphNode>,
        count: usize,
        parameters: In<CUDA_KERNEL_NODE_PARAMS>,
    ) -> Call {
        let new_node = NewNode { node, graph, dependencies, count };
        let kind = self.kernel_kind(&parameters.get()?)?;
        self.add(&new_node, |_| Ok(kind))
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
        let new_node = NewNode { node, graph, dependencies, count };
        let kind = self.copy_kind(&parameters.get()?, context)?;
        self.add(&new_node, |_| Ok(kind))
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
        let new_node = NewNode { node, graph, dependencies, count };
        let given = parameters.get()?;
        let kind = self.fill_kind(&given, context)?;
        self.add(&new_node, |state| state.refuse_freed(graph, given.dst).map(|()| kind))
    }

    pub(crate) fn cuGraphAddHostNode(
        &mut self,
        node: Out<CUgraphNode>,
        graph: CUgraph,
        dependencies: In<CUgraphNode>,
        count: usize,
        parameters: In<CUDA_HOST_NODE_PARAMS>,
    ) -> Call {
        let new_node = NewNode { node, graph, dependencies, count };
        self.add(&new_node, |state| state.host_kind(&parameters.get()?))
    }

    pub(crate) fn cuGraphAddEmptyNode(
        &mut self,
        node: Out<CUgraphNode>,
        graph: CUgraph,
        dependencies: In<CUgraphNode>,
        count: usize,
    ) -> Call {
        self.add(&NewNode { node, graph, dependencies, count }, |_| Ok(NodeKind::Empty))
    }

    pub(crate) fn cuGraphAddEventRecordNode(
        &mut self,
        node: Out<CUgraphNode>,
        graph: CUgraph,
        dependencies: In<CUgraphNode>,
        count: usize,
        event: CUevent,
    ) -> Call {
        let new_node = NewNode { node, graph, dependencies, count };
        self.add(&new_node, |state| state.record_kind(event))
    }

    pub(crate) fn cuGraphAddEventWaitNode(
        &mut self,
        node: Out<CUgraphNode>,
        graph: CUgraph,
        dependencies: In<CUgraphNode>,
        count: usize,
        event: CUevent,
    ) -> Call {
        let new_node = NewNode { node, graph, dependencies, count };
        self.add(&new_node, |state| state.wait_kind(event))
    }

    pub(crate) fn cuGraphAddChildGraphNode(
        &mut self,
        node: Out<CUgraphNode>,
        graph: CUgraph,
        dependencies: In<CUgraphNode>,
        count: usize,
        child: CUgraph,
    ) -> Call {
        self.add_child(&NewNode { node, graph, dependencies, count }, child)
    }

    /// Adds a child-graph node with a clone of `child`.
    pub(super) fn add_child(&mut self, new_node: &NewNode, child: CUgraph) -> Call {
        new_node.node.require()?;
        let child = self.known_graph(child)?;
        if child == new_node.graph {
            return Err(self.undefined("a graph inside itself"));
        }
        self.refuse_copy(child)?;
        self.add(new_node, |state| state.clone_graph(child, Owner::Node).map(NodeKind::Child))
    }

    pub(crate) fn cuGraphDestroyNode(&mut self, node: CUgraphNode) -> Call {
        let node = self.known_node(node)?;
        if self.is_captured_into(self.nodes.get(node)?.graph) {
            return Err(refuse(CUresult::CUDA_ERROR_ILLEGAL_STATE, Rule::CaptureGraphInUse));
        }
        if self.has_memory_nodes(self.nodes.get(node)?.graph)? {
            return Err(refuse(CUresult::CUDA_ERROR_NOT_SUPPORTED, Rule::GraphMemoryFixed));
        }
        let found = self.nodes.remove(node)?;
        let template = self.graphs.get_mut(found.graph)?;
        template.nodes.retain(|other| *other != node);
        for other in template.nodes.clone() {
            let other = self.nodes.get_mut(other)?;
            other.dependencies.retain(|dependency| *dependency != node);
            other.dependents.retain(|dependent| *dependent != node);
        }
        found.kind.graphs().iter().try_for_each(|graph| self.drop_graph(*graph))
    }
}
