//! Edges of graph templates: adding, removing and listing them.

use retrograph_driver_sys::*;

use crate::argument::{Call, In, Out};
use crate::refusal::{Refusal, Rule, invalid, refuse};
use crate::state::{NodeKind, State};
use crate::work::Operation;

/// An edge: source, target and edge data.
pub(super) type Edge = (CUgraphNode, CUgraphNode, CUgraphEdgeData);

/// The output buffers of a list of edges.
struct EdgeBuffers {
    from: Out<CUgraphNode>,
    to: Out<CUgraphNode>,
    data: Out<CUgraphEdgeData>,
    count: Out<usize>,
}

const FULL: CUgraphEdgeData =
    CUgraphEdgeData { from_port: 0, to_port: 0, r#type: 0, reserved: [0; 5] };

/// Reads edge data. Null means that all edges are full dependencies.
pub(super) fn kinds(
    data: In<CUgraphEdgeData>,
    count: usize,
) -> Result<Vec<CUgraphEdgeData>, Refusal> {
    if data.is_null() { Ok(vec![FULL; count]) } else { data.list(count) }
}

impl State {
    /// Checks edge data against the kinds of source and target.
    pub(super) fn check_kind(
        &self,
        from: CUgraphNode,
        is_to_kernel: bool,
        data: CUgraphEdgeData,
    ) -> Call {
        if data == FULL {
            return Ok(());
        }
        let from = &self.nodes.get(from)?.kind;
        let is_from_kernel = matches!(from, NodeKind::Operation(Operation::Launch(_)));
        // The programmatic port needs a programmatic edge; the launch-order port does not.
        let is_known = matches!((data.from_port, data.r#type), (1, 1) | (2, 0 | 1));
        let is_valid = is_known && data.to_port == 0 && data.reserved == [0; 5];
        match is_valid && is_from_kernel && is_to_kernel {
            true => Ok(()),
            false => Err(invalid(Rule::GraphEdgeKind)),
        }
    }

    /// Whether a node is a kernel node.
    pub(super) fn is_kernel(&self, node: CUgraphNode) -> Result<bool, Refusal> {
        Ok(matches!(self.nodes.get(node)?.kind, NodeKind::Operation(Operation::Launch(_))))
    }

    /// Reads the edges of a call. Source and target must be nodes of the graph.
    fn given_edges(
        &mut self,
        graph: CUgraph,
        from: In<CUgraphNode>,
        to: In<CUgraphNode>,
        data: In<CUgraphEdgeData>,
        count: usize,
    ) -> Result<Vec<Edge>, Refusal> {
        let graph = self.known_graph(graph)?;
        let ends = from.list(count)?.into_iter().zip(to.list(count)?);
        let edges: Vec<Edge> =
            ends.zip(kinds(data, count)?).map(|((from, to), data)| (from, to, data)).collect();
        for (from, to, _) in &edges {
            for node in [*from, *to] {
                let node = self.known_node(node)?;
                if self.nodes.get(node)?.graph != graph {
                    return Err(invalid(Rule::GraphNodeOfOtherGraph));
                }
            }
        }
        Ok(edges)
    }

    /// Adds edges in order. If one exists already, the call fails and earlier edges stay.
    fn add_edges(
        &mut self,
        graph: CUgraph,
        from: In<CUgraphNode>,
        to: In<CUgraphNode>,
        data: In<CUgraphEdgeData>,
        count: usize,
    ) -> Call {
        let edges = self.given_edges(graph, from, to, data, count)?;
        for (from, to, data) in &edges {
            if from == to {
                return Err(invalid(Rule::GraphSelfEdge));
            }
            self.check_kind(*from, self.is_kernel(*to)?, *data)?;
        }
        for (from, to, data) in edges {
            let found = self.nodes.get_mut(to)?;
            if found.dependencies.contains(&from) {
                return Err(invalid(Rule::GraphEdgeAgain));
            }
            found.dependencies.push(from);
            if data != FULL {
                found.edge_data.insert(from, data);
            }
            self.nodes.get_mut(from)?.dependents.push(to);
        }
        Ok(())
    }

    /// Removes edges of any kind in order. If one is absent, the call fails and earlier edges are
    /// removed.
    fn remove_edges(
        &mut self,
        graph: CUgraph,
        from: In<CUgraphNode>,
        to: In<CUgraphNode>,
        data: In<CUgraphEdgeData>,
        count: usize,
    ) -> Call {
        let edges = self.given_edges(graph, from, to, data, count)?;
        if self.has_memory_nodes(graph)? {
            return Err(refuse(CUresult::CUDA_ERROR_NOT_SUPPORTED, Rule::GraphMemoryFixed));
        }
        for (from, to, _) in edges {
            let found = self.nodes.get_mut(to)?;
            if !found.dependencies.contains(&from) {
                return Err(invalid(Rule::GraphNoEdge));
            }
            found.dependencies.retain(|node| *node != from);
            found.edge_data.remove(&from);
            self.nodes.get_mut(from)?.dependents.retain(|node| *node != to);
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
        self.add_edges(graph, from, to, In::NULL, count)
    }

    pub(crate) fn cuGraphAddDependencies_v2(
        &mut self,
        graph: CUgraph,
        from: In<CUgraphNode>,
        to: In<CUgraphNode>,
        data: In<CUgraphEdgeData>,
        count: usize,
    ) -> Call {
        self.add_edges(graph, from, to, data, count)
    }

    pub(crate) fn cuGraphRemoveDependencies(
        &mut self,
        graph: CUgraph,
        from: In<CUgraphNode>,
        to: In<CUgraphNode>,
        count: usize,
    ) -> Call {
        self.remove_edges(graph, from, to, In::NULL, count)
    }

    pub(crate) fn cuGraphRemoveDependencies_v2(
        &mut self,
        graph: CUgraph,
        from: In<CUgraphNode>,
        to: In<CUgraphNode>,
        data: In<CUgraphEdgeData>,
        count: usize,
    ) -> Call {
        self.remove_edges(graph, from, to, data, count)
    }

    /// The edges of a graph, ordered by source node.
    pub(super) fn edges(&self, graph: CUgraph) -> Result<Vec<Edge>, Refusal> {
        let mut edges = Vec::new();
        for from in &self.graphs.get(graph)?.nodes {
            edges.extend(self.edges_from(*from)?);
        }
        Ok(edges)
    }

    fn edge(&self, from: CUgraphNode, to: CUgraphNode) -> Result<Edge, Refusal> {
        let edge_data = &self.nodes.get(to)?.edge_data;
        Ok((from, to, edge_data.get(&from).copied().unwrap_or(FULL)))
    }

    fn edges_from(&self, from: CUgraphNode) -> Result<Vec<Edge>, Refusal> {
        self.nodes.get(from)?.dependents.iter().map(|to| self.edge(from, *to)).collect()
    }

    fn edges_to(&self, to: CUgraphNode) -> Result<Vec<Edge>, Refusal> {
        self.nodes.get(to)?.dependencies.iter().map(|from| self.edge(*from, to)).collect()
    }

    /// Writes edges in the format of the driver. Without a buffer for edge data, the call fails at
    /// the first edge that is not a full dependency; earlier edges stay written. Places after the
    /// edges become null, also then.
    fn put_edges(&mut self, edges: &[Edge], places: &EdgeBuffers) -> Call {
        let EdgeBuffers { from, to, data, count } = *places;
        if from.is_null() && to.is_null() {
            if !data.is_null() {
                return Err(invalid(Rule::GraphEdgePlaces));
            }
            return count.write(edges.len());
        }
        let capacity = count.get()?;
        if capacity == 0 {
            return Err(invalid(Rule::GraphNoRoom));
        }
        for index in edges.len()..capacity {
            from.write_at_unless_null(index, CUgraphNode::NULL);
            to.write_at_unless_null(index, CUgraphNode::NULL);
            if !from.is_null() && !to.is_null() {
                data.write_at_unless_null(index, FULL);
            }
        }
        for (index, (start, end, kind)) in edges.iter().take(capacity).enumerate() {
            let is_lost = data.is_null() && *kind != FULL;
            let has_both = !from.is_null() && !to.is_null();
            from.write_at_unless_null(
                index,
                if is_lost && has_both { CUgraphNode::NULL } else { *start },
            );
            to.write_at_unless_null(index, *end);
            data.write_at_unless_null(index, *kind);
            if is_lost {
                return Err(refuse(CUresult::CUDA_ERROR_LOSSY_QUERY, Rule::GraphLossy));
            }
        }
        count.write(edges.len().min(capacity))
    }

    pub(crate) fn cuGraphGetEdges_v2(
        &mut self,
        graph: CUgraph,
        from: Out<CUgraphNode>,
        to: Out<CUgraphNode>,
        data: Out<CUgraphEdgeData>,
        count: Out<usize>,
    ) -> Call {
        let graph = self.known_graph(graph)?;
        if from.is_null() != to.is_null() {
            return Err(invalid(Rule::GraphEdgePlaces));
        }
        let edges = self.edges(graph)?;
        self.put_edges(&edges, &EdgeBuffers { from, to, data, count })
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
        let node = self.known_node(node)?;
        let edges = self.edges_to(node)?;
        self.put_edges(&edges, &EdgeBuffers { from: dependencies, to: Out::NULL, data, count })
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
        let node = self.known_node(node)?;
        let edges = self.edges_from(node)?;
        self.put_edges(&edges, &EdgeBuffers { from: Out::NULL, to: dependents, data, count })
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
