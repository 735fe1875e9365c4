//! Graph templates and their nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_void;

use retrograph_driver_sys::*;

use super::State;
use crate::argument::Call;
use crate::refusal::{Refusal, Rule, invalid};
use crate::work::Operation;

/// What a node does.
#[derive(Clone)]
pub(crate) enum NodeKind {
    /// A launch, copy, fill or call of a host function.
    Operation(Operation),
    /// A graph that belongs to the node.
    Child(CUgraph),
    /// Nothing.
    Empty,
    /// Records an event for the outside.
    Record(CUevent),
    /// Waits for an event of the outside.
    Wait(CUevent),
    /// Makes reserved addresses usable.
    Alloc(u64),
    /// Ends the use of what an allocation node made.
    Free(u64),
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
            Self::Record(_) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_EVENT_RECORD,
            Self::Wait(_) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_WAIT_EVENT,
            Self::Alloc(_) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEM_ALLOC,
            Self::Free(_) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEM_FREE,
        }
    }

    /// Whether the node allocates or frees.
    pub(crate) fn is_memory(&self) -> bool {
        matches!(self, Self::Alloc(_) | Self::Free(_))
    }
}

/// A node of a template.
pub(crate) struct Node {
    pub(crate) graph: CUgraph,
    pub(crate) kind: NodeKind,
    pub(crate) dependencies: Vec<CUgraphNode>,
    /// The nodes that depend on it, in the order of the edges' addition.
    pub(crate) dependents: Vec<CUgraphNode>,
    /// What kind of edge leads here from a node, where it is not a full dependency.
    pub(crate) ports: BTreeMap<CUgraphNode, CUgraphEdgeData>,
    /// Attributes of a launch that were set.
    pub(crate) attributes: BTreeMap<u32, [u8; 64]>,
    /// For a launch, pointers to its parameter values, which a caller may ask for.
    pub(crate) pointers: Box<[*mut c_void]>,
}

impl Node {
    /// Whether the blocks of a launch wait for each other, as its attributes say.
    pub(crate) fn is_cooperative(&self) -> bool {
        let attribute = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
        self.attributes.get(&attribute.0).is_some_and(|value| value[..4] != [0; 4])
    }
}

/// A template.
#[derive(Default)]
pub(crate) struct Graph {
    /// Nodes in the order in which they were added.
    pub(crate) nodes: Vec<CUgraphNode>,
    /// The node or capture that owns the graph.
    pub(crate) owner: Owner,
    /// For a clone, its node for each node of the original.
    pub(crate) clones: BTreeMap<CUgraphNode, CUgraphNode>,
    /// References to objects of the user.
    pub(crate) objects: BTreeMap<CUuserObject, u32>,
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
    /// Nobody: it was lost with the capture that it was given to.
    Nobody,
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

    /// The graph of a handle that a program passed.
    pub(crate) fn given_graph(&mut self, graph: CUgraph) -> Result<CUgraph, Refusal> {
        match self.graphs.get(graph) {
            Ok(found) if found.owner == Owner::Nobody => Err(invalid(Rule::GraphLost)),
            Ok(_) => Ok(graph),
            Err(_) if graph.is_null() => Err(invalid(Rule::GraphNull)),
            Err(_) => Err(self.undefined("the graph does not exist, or does not any more")),
        }
    }

    /// The node of a handle that a program passed.
    pub(crate) fn given_node(&mut self, node: CUgraphNode) -> Result<CUgraphNode, Refusal> {
        match self.nodes.contains(node) {
            true => Ok(node),
            false if node.is_null() => Err(invalid(Rule::GraphNullNode)),
            false => Err(self.undefined("the node does not exist, or does not any more")),
        }
    }

    /// Adds a node that depends on nodes of the same graph.
    pub(crate) fn add_node(
        &mut self,
        graph: CUgraph,
        dependencies: Vec<CUgraphNode>,
        kind: NodeKind,
    ) -> Result<CUgraphNode, Refusal> {
        let handle = self.handle();
        self.graphs.get_mut(graph)?.nodes.push(handle);
        let pointers = pointers_of(&kind);
        for dependency in &dependencies {
            self.nodes.get_mut(*dependency)?.dependents.push(handle);
        }
        let node = Node {
            graph,
            kind,
            dependencies,
            dependents: Vec::new(),
            ports: BTreeMap::new(),
            attributes: BTreeMap::new(),
            pointers,
        };
        self.nodes.insert(handle, node);
        Ok(handle)
    }

    /// Replaces what a node does by something of the same kind.
    pub(crate) fn set_node(&mut self, node: CUgraphNode, kind: NodeKind) -> Call {
        let node = self.nodes.get_mut(node)?;
        if node.kind.node_type() != kind.node_type() {
            return Err(invalid(Rule::GraphAnotherKind));
        }
        node.pointers = pointers_of(&kind);
        node.kind = kind;
        Ok(())
    }

    /// Takes a graph from the program: nothing can be done with it any more.
    pub(crate) fn lose_graph(&mut self, graph: CUgraph) -> Call {
        self.drop_graph(graph)?;
        self.graphs.insert(graph, Graph { owner: Owner::Nobody, ..Graph::default() });
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
        self.release_objects(graph.objects);
        Ok(())
    }

    /// Copies a graph with all that is in it.
    pub(crate) fn clone_graph(
        &mut self,
        original: CUgraph,
        owner: Owner,
    ) -> Result<CUgraph, Refusal> {
        let found = self.graphs.get(original)?;
        let (nodes, objects) = (found.nodes.clone(), found.objects.clone());
        self.retain_objects(&objects);
        let clone = self.new_graph(owner);
        let mut clones = BTreeMap::new();
        for node in &nodes {
            let kind = match &self.nodes.get(*node)?.kind {
                NodeKind::Child(child) => {
                    let child = *child;
                    NodeKind::Child(self.clone_graph(child, Owner::Node)?)
                }
                other => other.clone(),
            };
            clones.insert(*node, self.add_node(clone, Vec::new(), kind)?);
        }
        // Edges may point to nodes that were added later, so they follow when all nodes are there.
        for node in &nodes {
            let found = self.nodes.get(*node)?;
            let copy = |node: &CUgraphNode| clones.get(node).copied();
            let dependencies = found.dependencies.iter().filter_map(copy).collect();
            let dependents = found.dependents.iter().filter_map(copy).collect();
            let ports = found.ports.iter().filter_map(|(from, data)| Some((copy(from)?, *data)));
            let (ports, attributes) = (ports.collect(), found.attributes.clone());
            let node = self.nodes.get_mut(clones[node])?;
            (node.dependencies, node.dependents) = (dependencies, dependents);
            (node.ports, node.attributes) = (ports, attributes);
        }
        let made = self.graphs.get_mut(clone)?;
        (made.clones, made.objects) = (clones, objects);
        Ok(clone)
    }

    /// All nodes that `from` depend on, and themselves.
    pub(crate) fn ancestors(&self, from: &[CUgraphNode]) -> BTreeSet<CUgraphNode> {
        let mut found = BTreeSet::new();
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
