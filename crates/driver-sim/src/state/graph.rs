//! Graph templates and their nodes.

use std::ffi::c_void;

use retrograph_driver_sys::{CUgraph, CUgraphNode, CUgraphNodeType, CUresult};

use super::State;
use crate::argument::Call;
use crate::refusal::{Refusal, refuse};
use crate::work::Operation;

/// What a node does.
pub(crate) enum NodeKind {
    /// A launch, copy, fill or call of a host function.
    Operation(Operation),
    /// A graph that belongs to the node.
    Child(CUgraph),
    /// Nothing.
    Empty,
}

impl NodeKind {
    /// The kind as the driver names it.
    pub(crate) fn node_type(&self) -> CUgraphNodeType {
        match self {
            Self::Operation(Operation::Launch(_)) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_KERNEL,
            Self::Operation(Operation::Copy(_)) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMCPY,
            Self::Operation(Operation::Fill(_)) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMSET,
            Self::Operation(Operation::Host(_)) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_HOST,
            Self::Child(_) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_GRAPH,
            Self::Empty => CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY,
        }
    }
}

/// A node of a template.
pub(crate) struct Node {
    pub(crate) graph: CUgraph,
    pub(crate) kind: NodeKind,
    pub(crate) dependencies: Vec<CUgraphNode>,
    /// For a launch, pointers to its parameter values, which a caller may ask for.
    pub(crate) pointers: Box<[*mut c_void]>,
}

/// A template.
#[derive(Default)]
pub(crate) struct Graph {
    /// Nodes in the order in which they were added.
    pub(crate) nodes: Vec<CUgraphNode>,
    /// The node or capture that owns the graph.
    pub(crate) owner: Owner,
}

/// Who destroys a graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The program.
    #[default]
    Program,
    /// The node that contains it.
    Node,
    /// The capture that builds it.
    Capture,
}

impl Graph {
    /// Whether somebody else than the program destroys it.
    pub(crate) fn is_owned(&self) -> bool {
        self.owner != Owner::Program
    }
}

impl State {
    /// Makes an empty graph.
    pub(crate) fn new_graph(&mut self, owner: Owner) -> CUgraph {
        let graph = self.handle();
        self.graphs.insert(graph, Graph { owner, ..Graph::default() });
        graph
    }

    /// Adds a node. Its dependencies must be nodes of the same graph, each named once.
    pub(crate) fn add_node(
        &mut self,
        graph: CUgraph,
        dependencies: Vec<CUgraphNode>,
        kind: NodeKind,
    ) -> Result<CUgraphNode, Refusal> {
        self.graphs.get(graph)?;
        for (index, dependency) in dependencies.iter().enumerate() {
            let known = self.nodes.get(*dependency).is_ok_and(|node| node.graph == graph);
            if !known || dependencies[..index].contains(dependency) {
                return Err(refuse(CUresult::CUDA_ERROR_INVALID_VALUE, "graph.add_node"));
            }
        }
        let handle = self.handle();
        let pointers = pointers_of(&kind);
        self.nodes.insert(handle, Node { graph, kind, dependencies, pointers });
        self.graphs.get_mut(graph)?.nodes.push(handle);
        Ok(handle)
    }

    /// Replaces what a node does by an operation of the same kind.
    pub(crate) fn set_node(&mut self, node: CUgraphNode, operation: Operation) -> Call {
        let node = self.nodes.get_mut(node)?;
        let kind = NodeKind::Operation(operation);
        if node.kind.node_type() != kind.node_type() {
            return Err(refuse(CUresult::CUDA_ERROR_INVALID_VALUE, "graph.set_node"));
        }
        node.pointers = pointers_of(&kind);
        node.kind = kind;
        Ok(())
    }

    /// Destroys a graph, its nodes and the graphs inside them.
    pub(crate) fn drop_graph(&mut self, graph: CUgraph) -> Call {
        let graph = self.graphs.remove(graph)?;
        for node in graph.nodes {
            if let Ok(Node { kind: NodeKind::Child(child), .. }) = self.nodes.remove(node) {
                self.drop_graph(child)?;
            }
        }
        Ok(())
    }

    /// Copies a graph with all that is in it.
    pub(crate) fn clone_graph(
        &mut self,
        original: CUgraph,
        owner: Owner,
    ) -> Result<CUgraph, Refusal> {
        let nodes = self.graphs.get(original)?.nodes.clone();
        let clone = self.new_graph(owner);
        let mut copies = std::collections::BTreeMap::new();
        for node in &nodes {
            let found = self.nodes.get(*node)?;
            let child = match &found.kind {
                NodeKind::Child(child) => Some(*child),
                _ => None,
            };
            let kind = match (&found.kind, child) {
                (NodeKind::Operation(operation), _) => NodeKind::Operation(operation.clone()),
                (_, Some(child)) => NodeKind::Child(self.clone_graph(child, Owner::Node)?),
                _ => NodeKind::Empty,
            };
            copies.insert(*node, self.add_node(clone, Vec::new(), kind)?);
        }
        // Edges may point to nodes that were added later, so they follow when all nodes are there.
        for node in &nodes {
            let dependencies = &self.nodes.get(*node)?.dependencies;
            let dependencies = dependencies.iter().filter_map(|node| copies.get(node).copied());
            let dependencies = dependencies.collect();
            self.nodes.get_mut(copies[node])?.dependencies = dependencies;
        }
        Ok(clone)
    }

    /// All nodes that `from` depend on, and themselves.
    pub(crate) fn ancestors(
        &self,
        from: &[CUgraphNode],
    ) -> std::collections::BTreeSet<CUgraphNode> {
        let mut found = std::collections::BTreeSet::new();
        let mut unvisited = from.to_vec();
        while let Some(node) = unvisited.pop() {
            if found.insert(node) {
                let dependencies = self.nodes.get(node).map(|node| node.dependencies.as_slice());
                unvisited.extend(dependencies.unwrap_or_default());
            }
        }
        found
    }
}

fn pointers_of(kind: &NodeKind) -> Box<[*mut c_void]> {
    match kind {
        NodeKind::Operation(Operation::Launch(launch)) => launch.parameters.pointers(),
        _ => Box::default(),
    }
}
