//! Comparison of a graph with the plan of an executable graph.

use std::collections::BTreeMap;

use retrograph_driver_sys::*;

use super::Difference;
use crate::work::{Copy, End, Fill, Operation, Plan, PlanConditional, PlanNode, PlanWork};

/// The difference of graphs whose nodes or edges differ, without a particular node.
pub(super) const ANOTHER_SHAPE: Difference = (
    CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED,
    CUgraphNode::NULL,
    CUgraphNode::NULL,
);

/// Checks that an update may replace an operation by another one.
pub(super) fn replaceable(old: &Operation, new: &Operation) -> Result<(), CUgraphExecUpdateResult> {
    use CUgraphExecUpdateResult as R;
    let changed = Err(R::CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED);
    match (old, new) {
        (Operation::Launch(_), Operation::Launch(_)) => Ok(()),
        (Operation::Copy(old), Operation::Copy(new)) => {
            let kinds = |copy: &Copy| [kind(&copy.source), kind(&copy.target)];
            let flat = |copy: &Copy| copy.given.Height == 1 && copy.given.Depth == 1;
            if kinds(old) == kinds(new) && flat(old) == flat(new) { Ok(()) } else { changed }
        }
        (Operation::Fill(Fill { given: old, .. }), Operation::Fill(Fill { given: new, .. })) => {
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

/// The memory type of a copy's source or destination, which an update cannot change.
fn kind(end: &End) -> CUmemorytype {
    match end {
        End::Device(_) => CUmemorytype::CU_MEMORYTYPE_DEVICE,
        End::Array(..) => CUmemorytype::CU_MEMORYTYPE_ARRAY,
        End::Host(_) | End::Pageable(_) | End::Snapshot(_) => CUmemorytype::CU_MEMORYTYPE_HOST,
    }
}

/// Indices of nodes in topological order; among ready nodes, the one added first comes first.
pub(super) fn ranked(plan: &Plan) -> Vec<usize> {
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
pub(super) fn shape(plan: &Plan, order: &[usize]) -> Vec<BTreeMap<usize, CUgraphEdgeData>> {
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
pub(super) fn paired(old: &Plan, new: &Plan) -> Result<Vec<(usize, usize)>, Difference> {
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
pub(super) fn compare(old: &Plan, new: &Plan) -> Result<(), Difference> {
    for (from, to) in paired(old, new)?.into_iter().rev() {
        compare_nodes(&old.nodes[from], &new.nodes[to])?;
    }
    Ok(())
}

pub(super) fn compare_nodes(old: &PlanNode, new: &PlanNode) -> Result<(), Difference> {
    use CUgraphExecUpdateResult as R;
    let at_node = |result| (result, new.source, CUgraphNode::NULL);
    match (&old.work, &new.work) {
        (PlanWork::Operation(old), PlanWork::Operation(replacement)) => {
            replaceable(old, replacement).map_err(at_node)?;
        }
        (PlanWork::Child(old), PlanWork::Child(replacement)) => compare(old, replacement)?,
        (PlanWork::Conditional(old), PlanWork::Conditional(replacement)) => {
            let shape = |conditional: &PlanConditional| {
                (conditional.handle, conditional.r#type, conditional.bodies.len())
            };
            if shape(old) != shape(replacement) {
                return Err(at_node(R::CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED));
            }
            let mut bodies = old.bodies.iter().zip(&replacement.bodies);
            bodies.try_for_each(|(old, replacement)| compare(old, replacement))?;
        }
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

/// Copies the parameters of a plan of the same shape. Nodes keep the handles of the original
/// template.
pub(super) fn adopt(old: &mut Plan, mut new: Plan) {
    for (from, to) in paired(old, &new).unwrap_or_default() {
        let replacement = std::mem::replace(&mut new.nodes[to].work, PlanWork::Empty);
        match (&mut old.nodes[from].work, replacement) {
            (PlanWork::Child(old), PlanWork::Child(replacement)) => adopt(old, replacement),
            (PlanWork::Conditional(old), PlanWork::Conditional(replacement)) => {
                let bodies = old.bodies.iter_mut().zip(replacement.bodies);
                bodies.for_each(|(old, replacement)| adopt(old, replacement));
            }
            (work, replacement) => *work = replacement,
        }
    }
    old.defaults = new.defaults;
}
