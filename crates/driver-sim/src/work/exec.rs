//! Instantiated graphs.

use std::collections::BTreeMap;
use std::sync::Arc;

use retrograph_driver_sys::{
    CUevent, CUgraph, CUgraphConditionalHandle, CUgraphConditionalNodeType, CUgraphEdgeData,
    CUgraphNode, CUresult, CUuserObject,
};

use super::{Operation, TaskId};
use crate::refusal::{Refusal, Rule, refuse};
use crate::state::{Conditional, NodeKind, State};

/// The work of a node of an instantiated graph.
#[derive(Clone)]
pub(crate) enum PlanWork {
    /// One operation.
    Operation(Operation),
    /// A graph inside the graph.
    Child(Plan),
    /// Graphs whose execution kernels control.
    Conditional(PlanConditional),
    /// No work.
    Empty,
    /// Records an event.
    Record(CUevent),
    /// Waits for an event.
    Wait(CUevent),
    /// Makes reserved addresses usable.
    Alloc(u64),
    /// Ends their use.
    Free(u64),
}

impl PlanWork {
    /// Whether it allocates or frees.
    pub(crate) fn is_memory(&self) -> bool {
        matches!(self, Self::Alloc(_) | Self::Free(_))
    }

    /// The graphs inside it.
    pub(crate) fn plans(&self) -> &[Plan] {
        match self {
            Self::Child(child) => std::slice::from_ref(child),
            Self::Conditional(conditional) => &conditional.bodies,
            _ => &[],
        }
    }

    fn plans_mut(&mut self) -> &mut [Plan] {
        match self {
            Self::Child(child) => std::slice::from_mut(child),
            Self::Conditional(conditional) => &mut conditional.bodies,
            _ => &mut [],
        }
    }
}

/// A conditional node of an instantiated graph.
#[derive(Clone)]
pub(crate) struct PlanConditional {
    pub(crate) handle: CUgraphConditionalHandle,
    pub(crate) r#type: CUgraphConditionalNodeType,
    pub(crate) bodies: Vec<Plan>,
}

impl PlanConditional {
    pub(crate) fn is_loop(&self) -> bool {
        self.r#type == CUgraphConditionalNodeType::CU_GRAPH_COND_TYPE_WHILE
    }

    /// The index of the body that runs for a value of the handle, if any.
    pub(crate) fn body_at(&self, value: u32) -> Option<usize> {
        let index = match self.r#type {
            CUgraphConditionalNodeType::CU_GRAPH_COND_TYPE_SWITCH => value as usize,
            _ => usize::from(value == 0),
        };
        (index < self.bodies.len()).then_some(index)
    }
}

/// A node of an instantiated graph.
#[derive(Clone)]
pub(crate) struct PlanNode {
    /// Its node in the template.
    pub(crate) source: CUgraphNode,
    /// Indices of the nodes that it depends on.
    pub(crate) dependencies: Vec<usize>,
    /// Edges that are not full dependencies, by the index of the source node.
    pub(crate) edge_data: BTreeMap<usize, CUgraphEdgeData>,
    /// Whether its launch is cooperative.
    pub(crate) is_cooperative: bool,
    /// Whether it runs when the graph is launched.
    pub(crate) is_enabled: bool,
    pub(crate) work: PlanWork,
}

/// The nodes of an instantiated graph: a copy of the template, parameter values included.
#[derive(Clone)]
pub(crate) struct Plan {
    /// The template.
    pub(crate) graph: CUgraph,
    pub(crate) nodes: Vec<PlanNode>,
    /// The default value of each conditional handle, if it has one.
    pub(crate) defaults: Vec<Option<u32>>,
}

impl Plan {
    /// The dependencies of each node.
    pub(crate) fn dependencies(&self) -> Vec<Vec<usize>> {
        self.nodes.iter().map(|node| node.dependencies.clone()).collect()
    }

    /// Returns the node of a template node, also inside other nodes.
    pub(crate) fn find(&mut self, source: CUgraphNode) -> Option<&mut PlanNode> {
        let found = self.nodes.iter().position(|node| node.source == source);
        if let Some(index) = found {
            return self.nodes.get_mut(index);
        }
        let mut inner = self.nodes.iter_mut().flat_map(|node| node.work.plans_mut());
        inner.find_map(|plan| plan.find(source))
    }

    /// Returns the plan with snapshots of sources in pageable memory; `None` without such sources.
    pub(crate) fn with_sources_read(&self) -> Option<Self> {
        let read = |node: &PlanNode| match &node.work {
            _ if !node.is_enabled => None,
            PlanWork::Operation(Operation::Copy(copy)) => {
                Some(PlanWork::Operation(Operation::Copy(copy.with_source_read()?)))
            }
            PlanWork::Child(child) => Some(PlanWork::Child(child.with_sources_read()?)),
            _ => None,
        };
        let works: Vec<_> = self.nodes.iter().map(read).collect();
        if works.iter().all(Option::is_none) {
            return None;
        }
        let mut plan = self.clone();
        for (node, work) in plan.nodes.iter_mut().zip(works) {
            node.work = work.unwrap_or_else(|| node.work.clone());
        }
        Some(plan)
    }

    /// All work in a topological order, including child graphs.
    pub(crate) fn works(&self) -> Vec<&PlanWork> {
        let order = crate::random::Random::new(0).order(&self.dependencies()).unwrap_or_default();
        let mut works = Vec::new();
        for node in order.into_iter().map(|index| &self.nodes[index]) {
            match &node.work {
                PlanWork::Child(child) => works.extend(child.works()),
                work if node.is_enabled => works.push(work),
                _ => {}
            }
        }
        works
    }
}

/// An instantiated graph.
pub(crate) struct Exec {
    pub(crate) device: usize,
    pub(crate) flags: u64,
    /// Shared with queued launches, which keep their parameter values.
    pub(crate) plan: Arc<Plan>,
    /// The last launch: launches of one instantiated graph do not overlap.
    pub(crate) last: Option<TaskId>,
    /// References to user objects.
    pub(crate) objects: BTreeMap<CUuserObject, u32>,
}

impl State {
    /// Copies a template. An invalid structure returns the offending node.
    pub(crate) fn plan(&self, graph: CUgraph) -> Result<Plan, (Refusal, CUgraphNode)> {
        let invalid = |node| (refuse(CUresult::CUDA_ERROR_INVALID_VALUE, Rule::GraphCycle), node);
        let template = self.graphs.get(graph).map_err(|code| (code, CUgraphNode::NULL))?;
        let order: BTreeMap<_, _> =
            template.nodes.iter().enumerate().map(|(index, node)| (*node, index)).collect();
        let index_of = |node: &CUgraphNode| order.get(node).copied();
        let mut nodes = Vec::with_capacity(template.nodes.len());
        for &source in &template.nodes {
            let node = self.nodes.get(source).map_err(|code| (code, source))?;
            let edge_data =
                node.edge_data.iter().filter_map(|(from, data)| Some((index_of(from)?, *data)));
            let mut work = self.plan_work(&node.kind)?;
            if let PlanWork::Operation(Operation::Launch(launch)) = &mut work {
                launch.is_cooperative |= node.is_cooperative();
                launch.cluster = node.cluster().unwrap_or(launch.cluster);
                if !launch.has_whole_clusters() {
                    // No trace shows what a driver says to a grid that was set after the size.
                    return Err((Refusal::UNSUPPORTED, source));
                }
            }
            nodes.push(PlanNode {
                source,
                dependencies: node.dependencies.iter().filter_map(index_of).collect(),
                edge_data: edge_data.collect(),
                is_cooperative: node.is_cooperative(),
                is_enabled: true,
                work,
            });
        }
        let plan = Plan { graph, nodes, defaults: template.defaults.clone() };
        match cyclic(&plan.dependencies()) {
            None => Ok(plan),
            Some(index) => Err(invalid(template.nodes[index])),
        }
    }

    fn plan_work(&self, kind: &NodeKind) -> Result<PlanWork, (Refusal, CUgraphNode)> {
        Ok(match kind {
            NodeKind::Operation(operation) => PlanWork::Operation(operation.clone()),
            NodeKind::Child(child) => PlanWork::Child(self.plan(*child)?),
            NodeKind::Conditional(Conditional { handle, r#type, bodies }) => {
                let bodies =
                    bodies.iter().map(|body| self.plan(*body)).collect::<Result<_, _>>()?;
                PlanWork::Conditional(PlanConditional { handle: *handle, r#type: *r#type, bodies })
            }
            NodeKind::Empty => PlanWork::Empty,
            NodeKind::Record(event) => PlanWork::Record(*event),
            NodeKind::Wait(event) => PlanWork::Wait(*event),
            NodeKind::Alloc(address) => PlanWork::Alloc(*address),
            NodeKind::Free(address) => PlanWork::Free(*address),
        })
    }
}

/// The last node on a cycle or reachable from one, if any.
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
            None => return reached.iter().rposition(|done| !done),
        }
    }
}
