//! Edges of graph templates: adding, removing and listing them.

use retrograph_driver_sys::*;

use super::put_list;
use crate::argument::{Call, In, Out};
use crate::refusal::{Refusal, invalid, refuse};
use crate::state::{NodeKind, State};
use crate::work::Operation;

/// An edge: where it starts, where it ends, and of what kind it is.
pub(super) type Edge = (CUgraphNode, CUgraphNode, CUgraphEdgeData);

/// Where a list of edges goes.
struct Places {
    from: Out<CUgraphNode>,
    to: Out<CUgraphNode>,
    data: Out<CUgraphEdgeData>,
    count: Out<usize>,
}

const FULL: CUgraphEdgeData =
    CUgraphEdgeData { from_port: 0, to_port: 0, r#type: 0, reserved: [0; 5] };

/// Reads the kinds of edges; null means that all are full dependencies.
pub(super) fn kinds(
    data: In<CUgraphEdgeData>,
    count: usize,
) -> Result<Vec<CUgraphEdgeData>, Refusal> {
    if data.is_null() { Ok(vec![FULL; count]) } else { data.list(count) }
}

impl State {
    /// Whether an edge of this kind can lead from one node to another.
    pub(super) fn check_kind(
        &self,
        from: CUgraphNode,
        to: &NodeKind,
        data: CUgraphEdgeData,
    ) -> Call {
        if data == FULL {
            return Ok(());
        }
        let is_kernel = |kind: &NodeKind| matches!(kind, NodeKind::Operation(Operation::Launch(_)));
        let programmatic = CUgraphDependencyType::CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC.0;
        let is_valid = data.to_port == 0
            && data.reserved == [0; 5]
            && matches!(data.from_port, 1 | 2)
            && u32::from(data.r#type) == programmatic;
        if is_valid && is_kernel(&self.nodes.get(from)?.kind) && is_kernel(to) {
            Ok(())
        } else {
            Err(invalid("graph.edge_kind"))
        }
    }

    /// Edges as a call gives them, with ends in the graph.
    fn given_edges(
        &mut self,
        graph: CUgraph,
        (from, to): (In<CUgraphNode>, In<CUgraphNode>),
        data: In<CUgraphEdgeData>,
        count: usize,
    ) -> Result<Vec<Edge>, Refusal> {
        let graph = self.given_graph(graph)?;
        let ends = from.list(count)?.into_iter().zip(to.list(count)?);
        let edges: Vec<Edge> =
            ends.zip(kinds(data, count)?).map(|((from, to), data)| (from, to, data)).collect();
        for (from, to, _) in &edges {
            for node in [*from, *to] {
                let node = self.given_node(node)?;
                if self.nodes.get(node)?.graph != graph {
                    return Err(invalid("graph.foreign"));
                }
            }
        }
        Ok(edges)
    }

    fn add_edges(
        &mut self,
        graph: CUgraph,
        ends: (In<CUgraphNode>, In<CUgraphNode>),
        data: In<CUgraphEdgeData>,
        count: usize,
    ) -> Call {
        let edges = self.given_edges(graph, ends, data, count)?;
        for (index, (from, to, data)) in edges.iter().enumerate() {
            if from == to {
                return Err(invalid("graph.self_edge"));
            }
            let twice = edges[..index].iter().any(|other| (other.0, other.1) == (*from, *to));
            let found = self.nodes.get(*to)?;
            if twice || found.dependencies.contains(from) {
                return Err(invalid("graph.edge_again"));
            }
            self.check_kind(*from, &found.kind, *data)?;
        }
        for (from, to, data) in edges {
            let found = self.nodes.get_mut(to)?;
            found.dependencies.push(from);
            if data != FULL {
                found.ports.insert(from, data);
            }
        }
        Ok(())
    }

    fn remove_edges(
        &mut self,
        graph: CUgraph,
        ends: (In<CUgraphNode>, In<CUgraphNode>),
        data: In<CUgraphEdgeData>,
        count: usize,
    ) -> Call {
        let edges = self.given_edges(graph, ends, data, count)?;
        for (index, (from, to, data)) in edges.iter().enumerate() {
            let twice = edges[..index].iter().any(|other| (other.0, other.1) == (*from, *to));
            let found = self.nodes.get(*to)?;
            let kind = found.ports.get(from).copied().unwrap_or(FULL);
            if twice || !found.dependencies.contains(from) || kind != *data {
                return Err(invalid("graph.no_edge"));
            }
        }
        for (from, to, _) in edges {
            let found = self.nodes.get_mut(to)?;
            found.dependencies.retain(|node| *node != from);
            found.ports.remove(&from);
        }
        Ok(())
    }

    pub(crate) fn cuGraphAddDependencies(
        &mut self,
        graph: CUgraph,
        from: In<CUgraphNode>,
        to: In<CUgraphNode>,
        count: usize,
    ) -> Call {
        self.add_edges(graph, (from, to), In::NULL, count)
    }

    pub(crate) fn cuGraphAddDependencies_v2(
        &mut self,
        graph: CUgraph,
        from: In<CUgraphNode>,
        to: In<CUgraphNode>,
        data: In<CUgraphEdgeData>,
        count: usize,
    ) -> Call {
        self.add_edges(graph, (from, to), data, count)
    }

    pub(crate) fn cuGraphRemoveDependencies(
        &mut self,
        graph: CUgraph,
        from: In<CUgraphNode>,
        to: In<CUgraphNode>,
        count: usize,
    ) -> Call {
        self.remove_edges(graph, (from, to), In::NULL, count)
    }

    pub(crate) fn cuGraphRemoveDependencies_v2(
        &mut self,
        graph: CUgraph,
        from: In<CUgraphNode>,
        to: In<CUgraphNode>,
        data: In<CUgraphEdgeData>,
        count: usize,
    ) -> Call {
        self.remove_edges(graph, (from, to), data, count)
    }

    /// The edges of a graph, in the order of the nodes that they lead to.
    pub(super) fn edges(&self, graph: CUgraph) -> Result<Vec<Edge>, Refusal> {
        let mut edges = Vec::new();
        for to in &self.graphs.get(graph)?.nodes {
            edges.extend(self.edges_to(*to)?);
        }
        Ok(edges)
    }

    fn edges_to(&self, to: CUgraphNode) -> Result<Vec<Edge>, Refusal> {
        let node = self.nodes.get(to)?;
        let kind = |from| node.ports.get(from).copied().unwrap_or(FULL);
        Ok(node.dependencies.iter().map(|from| (*from, to, kind(from))).collect())
    }

    /// Writes edges in the way that the driver does. Without a place for their kinds all must be
    /// full dependencies.
    fn put_edges(&mut self, edges: &[Edge], places: &Places) -> Call {
        let Places { from, to, data, count } = *places;
        count.demand()?;
        let wants_nodes = !from.is_null() || !to.is_null();
        if !data.is_null() && !wants_nodes {
            return Err(invalid("graph.edge_places"));
        }
        if !wants_nodes {
            return count.put(edges.len());
        }
        if data.is_null() && edges.iter().any(|edge| edge.2 != FULL) {
            return Err(refuse(CUresult::CUDA_ERROR_LOSSY_QUERY, "graph.lossy"));
        }
        let room = count.get()?;
        let starts: Vec<_> = edges.iter().map(|edge| edge.0).collect();
        let ends: Vec<_> = edges.iter().map(|edge| edge.1).collect();
        let kinds: Vec<_> = edges.iter().map(|edge| edge.2).collect();
        if !from.is_null() {
            put_list(&starts, from, count, CUgraphNode::NULL)?;
        }
        if !to.is_null() {
            count.put(room)?;
            put_list(&ends, to, count, CUgraphNode::NULL)?;
        }
        if !data.is_null() {
            count.put(room)?;
            put_list(&kinds, data, count, FULL)?;
        }
        Ok(())
    }

    pub(crate) fn cuGraphGetEdges_v2(
        &mut self,
        graph: CUgraph,
        from: Out<CUgraphNode>,
        to: Out<CUgraphNode>,
        data: Out<CUgraphEdgeData>,
        count: Out<usize>,
    ) -> Call {
        let graph = self.given_graph(graph)?;
        if from.is_null() != to.is_null() {
            return Err(invalid("graph.edge_places"));
        }
        let edges = self.edges(graph)?;
        self.put_edges(&edges, &Places { from, to, data, count })
    }

    pub(crate) fn cuGraphGetEdges(
        &mut self,
        graph: CUgraph,
        from: Out<CUgraphNode>,
        to: Out<CUgraphNode>,
        count: Out<usize>,
    ) -> Call {
        self.cuGraphGetEdges_v2(graph, from, to, Out::NULL, count)
    }

    pub(crate) fn cuGraphNodeGetDependencies_v2(
        &mut self,
        node: CUgraphNode,
        dependencies: Out<CUgraphNode>,
        data: Out<CUgraphEdgeData>,
        count: Out<usize>,
    ) -> Call {
        let node = self.given_node(node)?;
        let edges = self.edges_to(node)?;
        self.put_edges(&edges, &Places { from: dependencies, to: Out::NULL, data, count })
    }

    pub(crate) fn cuGraphNodeGetDependencies(
        &mut self,
        node: CUgraphNode,
        dependencies: Out<CUgraphNode>,
        count: Out<usize>,
    ) -> Call {
        self.cuGraphNodeGetDependencies_v2(node, dependencies, Out::NULL, count)
    }

    pub(crate) fn cuGraphNodeGetDependentNodes_v2(
        &mut self,
        node: CUgraphNode,
        dependents: Out<CUgraphNode>,
        data: Out<CUgraphEdgeData>,
        count: Out<usize>,
    ) -> Call {
        let node = self.given_node(node)?;
        let mut edges = self.edges(self.nodes.get(node)?.graph)?;
        edges.retain(|edge| edge.0 == node);
        self.put_edges(&edges, &Places { from: Out::NULL, to: dependents, data, count })
    }

    pub(crate) fn cuGraphNodeGetDependentNodes(
        &mut self,
        node: CUgraphNode,
        dependents: Out<CUgraphNode>,
        count: Out<usize>,
    ) -> Call {
        self.cuGraphNodeGetDependentNodes_v2(node, dependents, Out::NULL, count)
    }
}
