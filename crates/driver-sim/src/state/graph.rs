//! Graph templates and their nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_void;

use retrograph_driver_sys::*;

use super::{Conditional, State};
use crate::argument::Call;
use crate::refusal::{Refusal, Rule, invalid};
use crate::work::Operation;

/// The kind of a node.
#[derive(Clone)]
pub(crate) enum NodeKind {
    /// A launch, copy, fill or host function.
    Operation(Operation),
    /// A child graph, owned by the node.
    Child(CUgraph),
    /// Graphs whose execution kernels control.
    Conditional(Conditional),
    /// No work.
    Empty,
    /// Records an event.
    Record(CUevent),
    /// Waits for an event.
    Wait(CUevent),
    /// Allocates the memory at a reserved address.
    Alloc(u64),
    /// Frees the memory of an allocation node.
    Free(u64),
}

impl NodeKind {
    /// The driver's constant of the kind.
    pub(crate) fn node_type(&self) -> CUgraphNodeType {
        match self {
            Self::Operation(Operation::Launch(_)) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_KERNEL,
            Self::Operation(Operation::Copy(_)) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMCPY,
            Self::Operation(Operation::Fill(_)) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMSET,
            Self::Operation(Operation::Host(_)) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_HOST,
            Self::Child(_) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_GRAPH,
            Self::Conditional(_) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_CONDITIONAL,
            Self::Empty => CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY,
            Self::Record(_) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_EVENT_RECORD,
            Self::Wait(_) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_WAIT_EVENT,
            Self::Alloc(_) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEM_ALLOC,
            Self::Free(_) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEM_FREE,
        }
    }

    /// The graphs that the node owns.
    pub(crate) fn graphs(&self) -> &[CUgraph] {
        match self {
            Self::Child(child) => std::slice::from_ref(child),
            Self::Conditional(conditional) => &conditional.bodies,
            _ => &[],
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
    /// The nodes that depend on it, in the order in which their edges were added.
    pub(crate) dependents: Vec<CUgraphNode>,
    /// Edge data by source node, of edges that are not full dependencies.
    pub(crate) edge_data: BTreeMap<CUgraphNode, CUgraphEdgeData>,
    /// Launch attributes that the program set.
    pub(crate) attributes: BTreeMap<u32, [u8; 64]>,
    /// Pointers to the parameter values of a launch, for `cuGraphKernelNodeGetParams`.
    pub(crate) parameter_pointers: Box<[*mut c_void]>,
}

impl Node {
    /// Whether the launch is cooperative.
    pub(crate) fn is_cooperative(&self) -> bool {
        self.attribute(CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_COOPERATIVE)[0] != 0
    }

    /// The cluster size that the program set, if any.
    pub(crate) fn cluster(&self) -> Option<[u32; 3]> {
        let attribute = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
        Some(self.attribute(attribute)).filter(|size| *size != [0; 3])
    }

    /// The first words of an attribute.
    fn attribute(&self, attribute: CUlaunchAttributeID) -> [u32; 3] {
        let value = self.attributes.get(&attribute.0).copied().unwrap_or([0; 64]);
        std::array::from_fn(|word| {
            u32::from_ne_bytes(std::array::from_fn(|byte| value[4 * word + byte]))
        })
    }
}

/// A template.
#[derive(Default)]
pub(crate) struct Graph {
    /// Nodes in order of addition.
    pub(crate) nodes: Vec<CUgraphNode>,
    /// The owner of the graph.
    pub(crate) owner: Owner,
    /// For a clone, its nodes by node of the original.
    pub(crate) clones: BTreeMap<CUgraphNode, CUgraphNode>,
    /// References to user objects.
    pub(crate) objects: BTreeMap<CUuserObject, u32>,
    /// The id that all captures into this graph share, as recorded in
    /// docs/hardware/2026-11-25-two-gpus-overlapped.
    pub(crate) capture_number: Option<u64>,
    /// The default value of each conditional handle, if it has one. The first handle is 1.
    pub(crate) defaults: Vec<Option<u32>>,
    /// The node that contains it.
    pub(crate) within: Option<CUgraphNode>,
}

/// The owner of a graph, which destroys it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The program.
    #[default]
    Program,
    /// The node that contains it.
    Node,
    /// The capture that builds it.
    Capture,
    /// None: the program passed it to a capture that failed.
    Orphaned,
}

impl Graph {
    /// Whether the program must not destroy it.
    pub(crate) fn is_owned(&self) -> bool {
        self.owner != Owner::Program
    }
}

impl State {
    /// Creates an empty graph.
    pub(crate) fn new_graph(&mut self, owner: Owner) -> CUgraph {
        let graph = self.handle();
        self.graphs.insert(graph, Graph { owner, ..Graph::default() });
        graph
    }

    /// The graph of a handle that the program passed.
    pub(crate) fn known_graph(&mut self, graph: CUgraph) -> Result<CUgraph, Refusal> {
        match self.graphs.get(graph) {
            Ok(found) if found.owner == Owner::Orphaned => Err(invalid(Rule::GraphLost)),
            Ok(_) => Ok(graph),
            Err(_) if graph.is_null() => Err(invalid(Rule::GraphNull)),
            Err(_) => Err(self.undefined("the graph does not exist or was destroyed")),
        }
    }

    /// The node of a handle that the program passed.
    pub(crate) fn known_node(&mut self, node: CUgraphNode) -> Result<CUgraphNode, Refusal> {
        match self.nodes.contains(node) {
            true => Ok(node),
            false if node.is_null() => Err(invalid(Rule::GraphNullNode)),
            false => Err(self.undefined("the node does not exist or was destroyed")),
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
        let parameter_pointers = pointers_of(&kind);
        for inner in kind.graphs() {
            self.graphs.get_mut(*inner)?.within = Some(handle);
        }
        for dependency in &dependencies {
            self.nodes.get_mut(*dependency)?.dependents.push(handle);
        }
        let node = Node {
            graph,
            kind,
            dependencies,
            dependents: Vec::new(),
            edge_data: BTreeMap::new(),
            attributes: BTreeMap::new(),
            parameter_pointers,
        };
        self.nodes.insert(handle, node);
        Ok(handle)
    }

    /// Replaces the parameters of a node; its kind stays.
    pub(crate) fn set_node(&mut self, node: CUgraphNode, kind: NodeKind) -> Call {
        if self.nodes.get(node)?.kind.node_type() != kind.node_type() {
            return Err(invalid(Rule::GraphAnotherKind));
        }
        for inner in kind.graphs() {
            self.graphs.get_mut(*inner)?.within = Some(node);
        }
        let node = self.nodes.get_mut(node)?;
        node.parameter_pointers = pointers_of(&kind);
        node.kind = match (kind, &node.kind) {
            (NodeKind::Operation(new), NodeKind::Operation(old)) => {
                NodeKind::Operation(new.in_place_of(old))
            }
            (kind, _) => kind,
        };
        Ok(())
    }

    /// Makes a graph unusable for the program.
    pub(crate) fn orphan_graph(&mut self, graph: CUgraph) -> Call {
        self.drop_graph(graph)?;
        self.graphs.insert(graph, Graph { owner: Owner::Orphaned, ..Graph::default() });
        Ok(())
    }

    /// Destroys a graph, its nodes and their child graphs.
    pub(crate) fn drop_graph(&mut self, graph: CUgraph) -> Call {
        let graph = self.graphs.remove(graph)?;
        for node in graph.nodes {
            for graph in self.nodes.remove(node)?.kind.graphs() {
                self.drop_graph(*graph)?;
            }
        }
        self.release_objects(graph.objects);
        Ok(())
    }

    /// Copies a graph with its nodes, edges and child graphs.
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
        // An edge may start at a node that was added later, so edges follow after all nodes.
        for node in &nodes {
            let found = self.nodes.get(*node)?;
            let copy = |node: &CUgraphNode| clones.get(node).copied();
            let dependencies = found.dependencies.iter().filter_map(copy).collect();
            let dependents = found.dependents.iter().filter_map(copy).collect();
            let edge_data =
                found.edge_data.iter().filter_map(|(from, data)| Some((copy(from)?, *data)));
            let (edge_data, attributes) = (edge_data.collect(), found.attributes.clone());
            let node = self.nodes.get_mut(clones[node])?;
            (node.dependencies, node.dependents) = (dependencies, dependents);
            (node.edge_data, node.attributes) = (edge_data, attributes);
        }
        let made = self.graphs.get_mut(clone)?;
        (made.clones, made.objects) = (clones, objects);
        Ok(clone)
    }

    /// Whether a graph or a nested graph has a node that satisfies a predicate.
    pub(crate) fn any_node(
        &self,
        graph: CUgraph,
        is_sought: &dyn Fn(&NodeKind) -> bool,
    ) -> Result<bool, Refusal> {
        for node in &self.graphs.get(graph)?.nodes {
            let kind = &self.nodes.get(*node)?.kind;
            if is_sought(kind) {
                return Ok(true);
            }
            for inner in kind.graphs() {
                if self.any_node(*inner, is_sought)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// `from` and all nodes that they depend on.
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
