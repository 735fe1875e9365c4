//! Changing the parameters of instantiated graphs.

use std::sync::Arc;

use retrograph_driver_sys::*;

use super::launch::Request;
use crate::argument::{Call, In, Out};
use crate::refusal::{invalid, refuse};
use crate::state::State;
use crate::work::{Copy, End, Fill, Operation, Plan, PlanWork};

/// What `cuGraphExecUpdate_v2` refuses, and where.
type Difference = (CUgraphExecUpdateResult, CUgraphNode);

impl State {
    /// Replaces the operation of one node by one of the same kind.
    fn set_exec_node(
        &mut self,
        exec: CUgraphExec,
        node: CUgraphNode,
        operation: Operation,
    ) -> Call {
        if !self.nodes.contains(node) {
            let message = "the node belongs to a template that was destroyed";
            return Err(self.undefined(message));
        }
        let exec = self.execs.get_mut(exec)?;
        // Launches that are queued keep the values that they were launched with.
        let plan = Arc::make_mut(&mut exec.plan);
        let found = plan.find(node).ok_or(invalid("update.set_exec_node.2"))?;
        match &mut found.work {
            PlanWork::Operation(old) if replaceable(old, &operation).is_ok() => {
                *old = operation;
                Ok(())
            }
            _ => Err(invalid("update.set_exec_node.3")),
        }
    }

    pub(crate) fn cuGraphExecKernelNodeSetParams_v2(
        &mut self,
        exec: CUgraphExec,
        node: CUgraphNode,
        parameters: In<CUDA_KERNEL_NODE_PARAMS>,
    ) -> Call {
        let launch = self.launch_of(&Request::of_node(&parameters.get()?))?;
        self.set_exec_node(exec, node, Operation::Launch(launch))
    }

    pub(crate) fn cuGraphExecMemcpyNodeSetParams(
        &mut self,
        exec: CUgraphExec,
        node: CUgraphNode,
        parameters: In<CUDA_MEMCPY3D>,
        context: CUcontext,
    ) -> Call {
        self.check_node_context(context)?;
        let copy = self.lasting_copy(&parameters.get()?)?;
        self.set_exec_node(exec, node, Operation::Copy(copy))
    }

    pub(crate) fn cuGraphExecMemsetNodeSetParams(
        &mut self,
        exec: CUgraphExec,
        node: CUgraphNode,
        parameters: In<CUDA_MEMSET_NODE_PARAMS>,
        context: CUcontext,
    ) -> Call {
        self.check_node_context(context)?;
        let fill = Fill(parameters.get()?);
        self.check_fill(&fill)?;
        self.set_exec_node(exec, node, Operation::Fill(fill))
    }

    pub(crate) fn cuGraphExecUpdate_v2(
        &mut self,
        exec: CUgraphExec,
        graph: CUgraph,
        info: Out<CUgraphExecUpdateResultInfo>,
    ) -> Call {
        self.current()?;
        if info.is_null() {
            return Err(invalid("update.cuGraphExecUpdate_v2"));
        }
        let new = self.plan(graph).map_err(|(code, _)| code)?;
        let exec = self.execs.get_mut(exec)?;
        match compare(&exec.plan, &new) {
            Ok(()) => {
                adopt(Arc::make_mut(&mut exec.plan), new);
                info.put(CUgraphExecUpdateResultInfo::default())
            }
            Err((result, errorNode)) => {
                let errorFromNode = CUgraphNode::NULL;
                info.put(CUgraphExecUpdateResultInfo { result, errorNode, errorFromNode })?;
                Err(refuse(
                    CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
                    "update.cuGraphExecUpdate_v2.2",
                ))
            }
        }
    }
}

/// Whether an operation may take the place of another one in an instantiated graph.
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
            let same_rows = old.height == new.height && old.width == new.width;
            if flat || same_rows { Ok(()) } else { changed }
        }
        _ => Err(R::CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED),
    }
}

fn is_device(end: &End) -> bool {
    matches!(end, End::Device(_))
}

/// Whether a plan has the shape of another one, node by node in the order of their creation.
fn compare(old: &Plan, new: &Plan) -> Result<(), Difference> {
    use CUgraphExecUpdateResult as R;
    let topology = |node| (R::CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, node);
    if old.nodes.len() != new.nodes.len() {
        return Err(topology(CUgraphNode::NULL));
    }
    for (old, new) in old.nodes.iter().zip(&new.nodes) {
        match (&old.work, &new.work) {
            (PlanWork::Operation(old), PlanWork::Operation(replacement)) => {
                replaceable(old, replacement).map_err(|result| (result, new.source))?;
            }
            (PlanWork::Child(old), PlanWork::Child(replacement)) => compare(old, replacement)?,
            (PlanWork::Empty, PlanWork::Empty) => {}
            _ => return Err((R::CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, new.source)),
        }
        if old.dependencies != new.dependencies {
            return Err(topology(new.source));
        }
    }
    Ok(())
}

/// Takes over the operations of a plan of the same shape. Nodes keep the names of the template
/// that the graph was instantiated from.
fn adopt(old: &mut Plan, new: Plan) {
    for (old, new) in old.nodes.iter_mut().zip(new.nodes) {
        match (&mut old.work, new.work) {
            (PlanWork::Child(old), PlanWork::Child(replacement)) => adopt(old, replacement),
            (work, replacement) => *work = replacement,
        }
    }
}
