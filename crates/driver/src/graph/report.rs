//! Sizes of a graph as read back from the driver: nodes by kind, edges and depth.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use super::inspect::NodeKind;
use super::template::{Graph, Node};
use crate::error::Result;

/// Nodes, edges, depth and kinds of a graph, as read back from the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GraphReport {
    /// Number of nodes.
    pub nodes: usize,
    /// Number of edges.
    pub edges: usize,
    /// Number of nodes on the longest path.
    pub depth: usize,
    /// Number of nodes of each kind.
    pub kinds: BTreeMap<NodeKind, usize>,
}

impl fmt::Display for GraphReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} nodes, {} edges, depth {}", self.nodes, self.edges, self.depth)?;
        for (at, (kind, count)) in self.kinds.iter().enumerate() {
            let sign = if at == 0 { ": " } else { ", " };
            write!(f, "{sign}{count} × {kind}")?;
        }
        Ok(())
    }
}

/// The nodes of a graph in a topological order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ordered {
    /// The nodes, level by level.
    pub nodes: Vec<Node>,
    /// The edges as positions in `nodes`, earlier and later.
    pub edges: Vec<(usize, usize)>,
    /// Number of nodes on the longest path.
    pub depth: usize,
}

impl Graph {
    /// Counts nodes by kind, edges and depth.
    ///
    /// # Errors
    /// If the driver fails.
    pub fn report(&self) -> Result<GraphReport> {
        let ordered = self.ordered()?;
        let mut kinds = BTreeMap::new();
        for node in &ordered.nodes {
            *kinds.entry(self.kind(*node)?).or_default() += 1;
        }
        let (nodes, edges) = (ordered.nodes.len(), ordered.edges.len());
        Ok(GraphReport { nodes, edges, depth: ordered.depth, kinds })
    }

    /// The nodes level by level, in a topological order; the first level waits for nothing. In a
    /// captured chain this is the order of the captured work.
    ///
    /// # Errors
    /// If the driver fails.
    pub fn ordered(&self) -> Result<Ordered> {
        let (mut nodes, edges) = (self.nodes()?, self.edges()?);
        let given: HashMap<Node, usize> =
            nodes.iter().enumerate().map(|(at, node)| (*node, at)).collect();
        let pairs: Vec<_> = edges.iter().map(|(from, to)| (given[from], given[to])).collect();
        let levels = levels(nodes.len(), &pairs);
        nodes.sort_by_key(|node| levels[given[node]]);
        let mut position = vec![0; nodes.len()];
        nodes.iter().enumerate().for_each(|(at, node)| position[given[node]] = at);
        let edges = pairs.into_iter().map(|(from, to)| (position[from], position[to])).collect();
        Ok(Ordered { nodes, edges, depth: levels.into_iter().max().unwrap_or(0) })
    }
}

/// The level of each node: the number of nodes on the longest path that ends there.
fn levels(nodes: usize, edges: &[(usize, usize)]) -> Vec<usize> {
    let mut later = vec![Vec::new(); nodes];
    let mut waits = vec![0usize; nodes];
    for &(from, to) in edges {
        later[from].push(to);
        waits[to] += 1;
    }
    let mut levels = vec![1usize; nodes];
    let mut ready: Vec<usize> = (0..nodes).filter(|&at| waits[at] == 0).collect();
    while let Some(at) = ready.pop() {
        for &next in &later[at] {
            levels[next] = levels[next].max(levels[at] + 1);
            waits[next] -= 1;
            if waits[next] == 0 {
                ready.push(next);
            }
        }
    }
    levels
}
