//! What the driver says about a graph, rather than what was asked for.

use std::collections::HashMap;

use crate::error::Result;
use crate::graph::{Graph, Node};

/// Sizes of a graph, as read back from the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) nodes: usize,
    pub(super) edges: usize,
    /// Nodes on the longest path.
    pub(super) depth: usize,
}

impl Shape {
    pub(super) fn of(graph: &Graph) -> Result<Self> {
        let (nodes, edges) = (graph.nodes()?, graph.edges()?);
        let positions: HashMap<Node, usize> =
            nodes.iter().enumerate().map(|(at, node)| (*node, at)).collect();
        let mut later = vec![Vec::new(); nodes.len()];
        let mut waits = vec![0usize; nodes.len()];
        for (from, to) in &edges {
            later[positions[from]].push(positions[to]);
            waits[positions[to]] += 1;
        }
        let mut levels = vec![1usize; nodes.len()];
        let mut ready: Vec<usize> = (0..nodes.len()).filter(|&at| waits[at] == 0).collect();
        while let Some(at) = ready.pop() {
            for &next in &later[at] {
                levels[next] = levels[next].max(levels[at] + 1);
                waits[next] -= 1;
                if waits[next] == 0 {
                    ready.push(next);
                }
            }
        }
        let depth = levels.iter().max().copied().unwrap_or(0);
        Ok(Self { nodes: nodes.len(), edges: edges.len(), depth })
    }
}
