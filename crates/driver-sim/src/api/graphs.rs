//! Graph templates: making them and adding nodes and edges.

use retrograph_driver_sys::*;

use super::launch::Request;
use crate::argument::{Call, In, Out};
use crate::refusal::{Refusal, invalid, refuse};
use crate::state::{NodeKind, Owner, State};
use crate::work::{Fill, Operation};

/// Where a new node goes and what it depends on.
struct Place {
    node: Out<CUgraphNode>,
    graph: CUgraph,
    dependencies: Vec<CUgraphNode>,
}

impl Place {
    fn new(
        node: Out<CUgraphNode>,
        graph: CUgraph,
        dependencies: In<CUgraphNode>,
        count: usize,
    ) -> Result<Self, Refusal> {
        if node.is_null() {
            return Err(invalid("graphs.new"));
        }
        Ok(Self { node, graph, dependencies: dependencies.list(count)? })
    }
}

impl State {
    fn add(&mut self, place: Place, kind: NodeKind) -> Call {
        let node = self.add_node(place.graph, place.dependencies, kind)?;
        place.node.put(node)
    }

    pub(crate) fn cuGraphCreate(&mut self, graph: Out<CUgraph>, flags: u32) -> Call {
        self.current()?;
        if flags != 0 || graph.is_null() {
            return Err(invalid("graphs.cuGraphCreate"));
        }
        let handle = self.new_graph(Owner::Program);
        graph.put(handle)
    }

    pub(crate) fn cuGraphDestroy(&mut self, graph: CUgraph) -> Call {
        match self.graphs.get(graph)?.is_owned() {
            true => Err(invalid("graphs.cuGraphDestroy")),
            false => self.drop_graph(graph),
        }
    }

    pub(crate) fn cuGraphClone(&mut self, clone: Out<CUgraph>, graph: CUgraph) -> Call {
        self.current()?;
        if clone.is_null() {
            return Err(invalid("graphs.cuGraphClone"));
        }
        let copy = self.clone_graph(graph, Owner::Program)?;
        clone.put(copy)
    }

    pub(crate) fn cuGraphAddKernelNode_v2(
        &mut self,
        node: Out<CUgraphNode>,
        graph: CUgraph,
        dependencies: In<CUgraphNode>,
        count: usize,
        parameters: In<CUDA_KERNEL_NODE_PARAMS>,
    ) -> Call {
        let launch = self.launch_of(&Request::of_node(&parameters.get()?))?;
        let place = Place::new(node, graph, dependencies, count)?;
        self.add(place, NodeKind::Operation(Operation::Launch(launch)))
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
        self.check_node_context(context)?;
        let copy = self.lasting_copy(&parameters.get()?)?;
        let place = Place::new(node, graph, dependencies, count)?;
        self.add(place, NodeKind::Operation(Operation::Copy(copy)))
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
        self.check_node_context(context)?;
        let fill = Fill(parameters.get()?);
        self.check_fill(&fill)?;
        let place = Place::new(node, graph, dependencies, count)?;
        self.add(place, NodeKind::Operation(Operation::Fill(fill)))
    }

    pub(crate) fn cuGraphAddEmptyNode(
        &mut self,
        node: Out<CUgraphNode>,
        graph: CUgraph,
        dependencies: In<CUgraphNode>,
        count: usize,
    ) -> Call {
        self.current()?;
        let place = Place::new(node, graph, dependencies, count)?;
        self.add(place, NodeKind::Empty)
    }

    pub(crate) fn cuGraphAddChildGraphNode(
        &mut self,
        node: Out<CUgraphNode>,
        graph: CUgraph,
        dependencies: In<CUgraphNode>,
        count: usize,
        child: CUgraph,
    ) -> Call {
        self.current()?;
        let place = Place::new(node, graph, dependencies, count)?;
        if child == graph {
            return Err(invalid("graphs.cuGraphAddChildGraphNode"));
        }
        let copy = self.clone_graph(child, Owner::Node)?;
        let added = self.add(place, NodeKind::Child(copy));
        if added.is_err() {
            self.drop_graph(copy)?;
        }
        added
    }

    /// Copies and fills name the context that they run in.
    pub(super) fn check_node_context(&mut self, context: CUcontext) -> Call {
        self.current()?;
        let known = self.devices.iter().any(|device| device.context == Some(context));
        if known {
            Ok(())
        } else {
            Err(refuse(CUresult::CUDA_ERROR_INVALID_CONTEXT, "graphs.check_node_context"))
        }
    }

    pub(crate) fn cuGraphAddDependencies(
        &mut self,
        graph: CUgraph,
        from: In<CUgraphNode>,
        to: In<CUgraphNode>,
        count: usize,
    ) -> Call {
        self.current()?;
        self.graphs.get(graph)?;
        let edges: Vec<_> = from.list(count)?.into_iter().zip(to.list(count)?).collect();
        for (index, (from, to)) in edges.iter().enumerate() {
            let inside = |node| self.nodes.get(node).is_ok_and(|node| node.graph == graph);
            let twice = edges[..index].contains(&(*from, *to));
            if twice || from == to || !inside(*from) || !inside(*to) {
                return Err(invalid("graphs.cuGraphAddDependencies"));
            }
            if self.nodes.get(*to)?.dependencies.contains(from) {
                return Err(invalid("graphs.cuGraphAddDependencies.2"));
            }
        }
        for (from, to) in edges {
            self.nodes.get_mut(to)?.dependencies.push(from);
        }
        Ok(())
    }

    pub(crate) fn cuGraphDestroyNode(&mut self, node: CUgraphNode) -> Call {
        let found = self.nodes.remove(node)?;
        let template = self.graphs.get_mut(found.graph)?;
        template.nodes.retain(|other| *other != node);
        for other in template.nodes.clone() {
            self.nodes.get_mut(other)?.dependencies.retain(|dependency| *dependency != node);
        }
        match found.kind {
            NodeKind::Child(child) => self.drop_graph(child),
            _ => Ok(()),
        }
    }

    pub(crate) fn cuGraphKernelNodeSetParams_v2(
        &mut self,
        node: CUgraphNode,
        parameters: In<CUDA_KERNEL_NODE_PARAMS>,
    ) -> Call {
        let launch = self.launch_of(&Request::of_node(&parameters.get()?))?;
        self.set_node(node, Operation::Launch(launch))
    }
}
