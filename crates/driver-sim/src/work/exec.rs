//! Instantiated graphs.

use std::sync::Arc;

use retrograph_driver_sys::{CUgraph, CUgraphNode, CUresult};

use super::{Operation, TaskId};
use crate::refusal::{Refusal, refuse};
use crate::state::{NodeKind, State};

/// What a node of an instantiated graph does.
#[derive(Clone)]
pub(crate) enum PlanWork {
    /// One operation.
    Operation(Operation),
    /// A graph inside the graph.
    Child(Plan),
    /// Nothing.
    Empty,
}

/// A node of an instantiated graph.
#[derive(Clone)]
pub(crate) struct PlanNode {
    /// The node of the template that it was made from.
    pub(crate) source: CUgraphNode,
    /// Indices of the nodes that it depends on, ascending.
    pub(crate) dependencies: Vec<usize>,
    pub(crate) work: PlanWork,
}

/// The nodes of an instantiated graph: a copy of the template, parameter values included.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) nodes: Vec<PlanNode>,
}

impl Plan {
    /// The dependencies of each node.
    pub(crate) fn dependencies(&self) -> Vec<Vec<usize>> {
        self.nodes.iter().map(|node| node.dependencies.clone()).collect()
    }

    /// The node that was made from a node of the template, also inside child graphs.
    pub(crate) fn find(&mut self, source: CUgraphNode) -> Option<&mut PlanNode> {
        let found = self.nodes.iter().position(|node| node.source == source);
        if let Some(index) = found {
            return self.nodes.get_mut(index);
        }
        self.nodes.iter_mut().find_map(|node| match &mut node.work {
            PlanWork::Child(child) => child.find(source),
            _ => None,
        })
    }
}

/// An instantiated graph.
pub(crate) struct Exec {
    pub(crate) device: usize,
    /// Shared with launches that are queued, which keep the values that they were launched with.
    pub(crate) plan: Arc<Plan>,
    /// The last launch: launches of one instantiated graph do not overlap.
    pub(crate) last: Option<TaskId>,
}

impl State {
    /// Copies a template. An invalid structure gives the node at which it shows.
    pub(crate) fn plan(&self, graph: CUgraph) -> Result<Plan, (Refusal, CUgraphNode)> {
        let invalid = |node| (refuse(CUresult::CUDA_ERROR_INVALID_VALUE, "exec.plan"), node);
        let template = self.graphs.get(graph).map_err(|code| (code, CUgraphNode::NULL))?;
        let order: std::collections::BTreeMap<_, _> =
            template.nodes.iter().enumerate().map(|(index, node)| (*node, index)).collect();
        let mut nodes = Vec::with_capacity(template.nodes.len());
        for &source in &template.nodes {
            let node = self.nodes.get(source).map_err(|code| (code, source))?;
            let mut dependencies: Vec<usize> =
                node.dependencies.iter().filter_map(|node| order.get(node).copied()).collect();
            dependencies.sort_unstable();
            let work = match &node.kind {
                NodeKind::Operation(operation) => PlanWork::Operation(operation.clone()),
                NodeKind::Child(child) => PlanWork::Child(self.plan(*child)?),
                NodeKind::Empty => PlanWork::Empty,
            };
            nodes.push(PlanNode { source, dependencies, work });
        }
        let plan = Plan { nodes };
        match cyclic(&plan.dependencies()) {
            None => Ok(plan),
            Some(index) => Err(invalid(template.nodes[index])),
        }
    }
}

/// The first node that lies on a cycle or behind one, if any.
fn cyclic(dependencies: &[Vec<usize>]) -> Option<usize> {
    let order = crate::random::Random::new(0).order(dependencies);
    if order.is_some() {
        return None;
    }
    let mut reached = vec![false; dependencies.len()];
    loop {
        let ready =
            |index: &usize| !reached[*index] && dependencies[*index].iter().all(|&d| reached[d]);
        match (0..dependencies.len()).find(ready) {
            Some(index) => reached[index] = true,
            None => return reached.iter().position(|done| !done),
        }
    }
}
