//! Updates of instantiated graphs.

use std::collections::BTreeMap;
use std::sync::Arc;

use retrograph_driver_sys::*;

use crate::argument::{Call, In, Out};
use crate::refusal::{Refusal, Rule, invalid, refuse};
use crate::state::{NodeKind, State};
use crate::work::{Copy, End, Fill, Operation, Plan, PlanNode, PlanWork};

/// A refusal of `cuGraphExecUpdate_v2`: the result, the node, and the source of a differing edge.
pub(super) type Difference = (CUgraphExecUpdateResult, CUgraphNode, CUgraphNode);

impl State {
    /// A node of an instantiated graph.
    fn exec_node(
        &mut self,
        exec: CUgraphExec,
        node: CUgraphNode,
    ) -> Result<&mut PlanNode, Refusal> {
        let exec = self.known_exec(exec)?;
        let node = self.known_node(node)?;
        let exec = self.execs.get_mut(exec)?;
        // Queued launches keep their values.
        Arc::make_mut(&mut exec.plan).find(node).ok_or(invalid(Rule::GraphNotInExec))
    }

    /// Replaces the parameters of a node of an instantiated graph; its kind stays.
    pub(super) fn set_exec_node(
        &mut self,
        exec: CUgraphExec,
        node: CUgraphNode,
        kind: &NodeKind,
    ) -> Call {
        let found = self.exec_node(exec, node)?;
        match (&mut found.work, kind) {
            (PlanWork::Operation(old), NodeKind::Operation(new)) => {
                replaceable(old, new).map_err(|_| invalid(Rule::GraphNotReplaceable))?;
                *old = new.clone();
            }
            (PlanWork::Record(old), NodeKind::Record(new))
            | (PlanWork::Wait(old), NodeKind::Wait(new)) => *old = *new,
            (PlanWork::Empty, NodeKind::Empty) => {}
            _ => return Err(invalid(Rule::GraphAnotherKind)),
        }
        Ok(())
    }

    /// Fails if `context` is null and no live context is current. Adding such a node does not.
    fn check_any_context(&mut self, context: CUcontext) -> Call {
        match context.is_null() && self.current().is_err() {
            true => Err(invalid(Rule::GraphNoContext)),
            false => Ok(()),
        }
    }

    pub(crate) fn cuGraphExecKernelNodeSetParams_v2(
        &mut self,
        exec: CUgraphExec,
        node: CUgraphNode,
        parameters: In<CUDA_KERNEL_NODE_PARAMS>,
    ) -> Call {
        let work = &self.exec_node(exec, node)?.work;
        if !matches!(work, PlanWork::Operation(Operation::Launch(_))) {
            return Err(invalid(Rule::GraphAnotherKind));
        }
        let kind = self.kernel_kind(&parameters.get()?)?;
        self.set_exec_node(exec, node, &kind)
    }

    pub(crate) fn cuGraphExecMemcpyNodeSetParams(
        &mut self,
        exec: CUgraphExec,
        node: CUgraphNode,
        parameters: In<CUDA_MEMCPY3D>,
        context: CUcontext,
    ) -> Call {
        self.check_any_context(context)?;
        let kind = self.copy_kind(&parameters.get()?, context)?;
        self.set_exec_node(exec, node, &kind)
    }

    pub(crate) fn cuGraphExecMemsetNodeSetParams(
        &mut self,
        exec: CUgraphExec,
        node: CUgraphNode,
        parameters: In<CUDA_MEMSET_NODE_PARAMS>,
        context: CUcontext,
    ) -> Call {
        self.check_any_context(context)?;
        let kind = self.fill_kind(&parameters.get()?, context)?;
        self.set_exec_node(exec, node, &kind)
    }

    pub(crate) fn cuGraphExecHostNodeSetParams(
        &mut self,
        exec: CUgraphExec,
        node: CUgraphNode,
        parameters: In<CUDA_HOST_NODE_PARAMS>,
    ) -> Call {
        let kind = self.host_kind(&parameters.get()?)?;
        self.set_exec_node(exec, node, &kind)
    }

    pub(crate) fn cuGraphExecEventRecordNodeSetEvent(
        &mut self,
        exec: CUgraphExec,
        node: CUgraphNode,
        event: CUevent,
    ) -> Call {
        let kind = self.record_kind(event)?;
        self.set_exec_node(exec, node, &kind)
    }

    pub(crate) fn cuGraphExecEventWaitNodeSetEvent(
        &mut self,
        exec: CUgraphExec,
        node: CUgraphNode,
        event: CUevent,
    ) -> Call {
        let kind = self.wait_kind(event)?;
        self.set_exec_node(exec, node, &kind)
    }

    pub(crate) fn cuGraphExecChildGraphNodeSetParams(
        &mut self,
        exec: CUgraphExec,
        node: CUgraphNode,
        child: CUgraph,
    ) -> Call {
        if !matches!(self.exec_node(exec, node)?.work, PlanWork::Child(_)) {
            return Err(invalid(Rule::GraphAnotherKind));
        }
        let child = self.known_graph(child)?;
        let code = CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
        let new = self.plan(child).map_err(|_| refuse(code, Rule::GraphAnotherShape))?;
        if let PlanWork::Child(old) = &mut self.exec_node(exec, node)?.work {
            compare(old, &new).map_err(|_| refuse(code, Rule::GraphAnotherShape))?;
            adopt(old, new);
        }
        Ok(())
    }

    pub(crate) fn cuGraphNodeSetEnabled(
        &mut self,
        exec: CUgraphExec,
        node: CUgraphNode,
        enabled: u32,
    ) -> Call {
        let found = self.exec_node(exec, node)?;
        can_be_disabled(&found.work)?;
        found.is_enabled = enabled != 0;
        Ok(())
    }

    pub(crate) fn cuGraphNodeGetEnabled(
        &mut self,
        exec: CUgraphExec,
        node: CUgraphNode,
        enabled: Out<u32>,
    ) -> Call {
        let found = self.exec_node(exec, node)?;
        can_be_disabled(&found.work)?;
        enabled.put(u32::from(found.is_enabled))
    }

    pub(crate) fn cuGraphExecUpdate_v2(
        &mut self,
        exec: CUgraphExec,
        graph: CUgraph,
        info: Out<CUgraphExecUpdateResultInfo>,
    ) -> Call {
        info.offer(CUgraphExecUpdateResultInfo::default());
        let exec = self.known_exec(exec)?;
        let graph = self.known_graph(graph)?;
        let compared = match self.plan(graph) {
            Ok(new) => compare(&self.execs.get(exec)?.plan, &new).map(|()| new),
            Err((refusal, _)) if refusal.rule == Rule::GraphCycle => Err(ANOTHER_SHAPE),
            Err((refusal, _)) => return Err(refusal),
        };
        match compared {
            Ok(new) if new.nodes.iter().any(|node| node.work.is_memory()) => {
                Err(self.unsupported("updates of nodes that allocate or free"))
            }
            Ok(new) => {
                adopt(Arc::make_mut(&mut self.execs.get_mut(exec)?.plan), new);
                let objects = self.graphs.get(graph)?.objects.clone();
                self.retain_objects(&objects);
                let held = std::mem::replace(&mut self.execs.get_mut(exec)?.objects, objects);
                self.release_objects(held);
                Ok(())
            }
            Err((result, errorNode, errorFromNode)) => {
                info.offer(CUgraphExecUpdateResultInfo { result, errorNode, errorFromNode });
                let code = CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
                Err(refuse(code, Rule::GraphUpdate))
            }
        }
    }
}

/// Graphs whose nodes or edges differ, without a particular node.
const ANOTHER_SHAPE: Difference = (
    CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED,
    CUgraphNode::NULL,
    CUgraphNode::NULL,
);

/// Refuses to disable nodes other than kernels, copies and fills.
fn can_be_disabled(work: &PlanWork) -> Call {
    match work {
        PlanWork::Operation(Operation::Host(_)) => Err(invalid(Rule::GraphAlwaysEnabled)),
        PlanWork::Operation(_) => Ok(()),
        _ => Err(invalid(Rule::GraphAlwaysEnabled)),
    }
}

/// Checks that an update may replace an operation by another one.
fn replaceable(old: &Operation, new: &Operation) -> Result<(), CUgraphExecUpdateResult> {
    use CUgraphExecUpdateResult as R;
    let changed = Err(R::CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED);
    match (old, new) {
        (Operation::Launch(_), Operation::Launch(_)) => Ok(()),
        (Operation::Copy(old), Operation::Copy(new)) => {
            let kinds = |copy: &Copy| [is_device(&copy.source), is_device(&copy.target)];
            let flat = |copy: &Copy| copy.given.Height == 1 && copy.given.Depth == 1;
            if kinds(old) == kinds(new) && flat(old) == flat(new) { Ok(()) } else { changed }
        }
        (Operation::Fill(Fill(old)), Operation::Fill(Fill(new))) => {
            let flat = old.height == 1 && new.height == 1;
            let rows = |fill: &CUDA_MEMSET_NODE_PARAMS| {
                (fill.height, fill.width, fill.pitch, fill.elementSize)
            };
            let same_rows = rows(old) == rows(new);
            if flat || same_rows { Ok(()) } else { changed }
        }
        (Operation::Host(_), Operation::Host(_)) => Ok(()),
        _ => Err(R::CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED),
    }
}

fn is_device(end: &End) -> bool {
    matches!(end, End::Device(_))
}

/// Indices of nodes in topological order; among ready nodes, the one added first comes first.
fn ranked(plan: &Plan) -> Vec<usize> {
    let mut order = Vec::with_capacity(plan.nodes.len());
    let mut placed = vec![false; plan.nodes.len()];
    let ready = |index: &usize, placed: &[bool]| {
        !placed[*index] && plan.nodes[*index].dependencies.iter().all(|&from| placed[from])
    };
    while let Some(next) = (0..placed.len()).find(|index| ready(index, &placed)) {
        placed[next] = true;
        order.push(next);
    }
    order
}

/// For each node in ranked order, the ranks of its dependents and the edge data.
fn shape(plan: &Plan, order: &[usize]) -> Vec<BTreeMap<usize, CUgraphEdgeData>> {
    let mut rank = vec![0; order.len()];
    order.iter().enumerate().for_each(|(at, &index)| rank[index] = at);
    let mut shape = vec![BTreeMap::new(); order.len()];
    for &index in order {
        let node = &plan.nodes[index];
        for from in &node.dependencies {
            let data = node.edge_data.get(from).copied().unwrap_or_default();
            shape[rank[*from]].insert(rank[index], data);
        }
    }
    shape
}

/// Pairs of corresponding nodes, by index. Fails if the edges differ.
fn paired(old: &Plan, new: &Plan) -> Result<Vec<(usize, usize)>, Difference> {
    if old.nodes.len() != new.nodes.len() {
        return Err(ANOTHER_SHAPE);
    }
    let (old_order, new_order) = (ranked(old), ranked(new));
    let (old_shape, new_shape) = (shape(old, &old_order), shape(new, &new_order));
    let source = |rank: usize| new.nodes[new_order[rank]].source;
    for (rank, (old, new)) in old_shape.iter().zip(&new_shape).enumerate() {
        if new.len() < old.len() {
            return Err((ANOTHER_SHAPE.0, source(rank), CUgraphNode::NULL));
        }
        if !old.keys().eq(new.keys()) {
            return Err(ANOTHER_SHAPE);
        }
        if let Some((to, _)) = new.iter().find(|(to, data)| old[*to] != **data) {
            return Err((ANOTHER_SHAPE.0, source(*to), source(rank)));
        }
    }
    Ok(old_order.into_iter().zip(new_order).collect())
}

/// Checks that a plan may replace another one: its shape, then its nodes, last one first.
fn compare(old: &Plan, new: &Plan) -> Result<(), Difference> {
    for (from, to) in paired(old, new)?.into_iter().rev() {
        compare_nodes(&old.nodes[from], &new.nodes[to])?;
    }
    Ok(())
}

fn compare_nodes(old: &PlanNode, new: &PlanNode) -> Result<(), Difference> {
    use CUgraphExecUpdateResult as R;
    let at_node = |result| (result, new.source, CUgraphNode::NULL);
    match (&old.work, &new.work) {
        (PlanWork::Operation(old), PlanWork::Operation(replacement)) => {
            replaceable(old, replacement).map_err(at_node)?;
        }
        (PlanWork::Child(old), PlanWork::Child(replacement)) => compare(old, replacement)?,
        (PlanWork::Empty, PlanWork::Empty)
        | (PlanWork::Record(_), PlanWork::Record(_))
        | (PlanWork::Wait(_), PlanWork::Wait(_))
        | (PlanWork::Alloc(_), PlanWork::Alloc(_))
        | (PlanWork::Free(_), PlanWork::Free(_)) => {}
        _ => return Err(at_node(R::CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED)),
    }
    match old.is_cooperative == new.is_cooperative {
        true => Ok(()),
        false => Err(at_node(R::CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED)),
    }
}

/// Takes over the parameters of a plan of the same shape. Nodes keep the handles of the template
/// that the graph was instantiated from.
fn adopt(old: &mut Plan, mut new: Plan) {
    for (from, to) in paired(old, &new).unwrap_or_default() {
        let replacement = std::mem::replace(&mut new.nodes[to].work, PlanWork::Empty);
        match (&mut old.nodes[from].work, replacement) {
            (PlanWork::Child(old), PlanWork::Child(replacement)) => adopt(old, replacement),
            (work, replacement) => *work = replacement,
        }
    }
}
