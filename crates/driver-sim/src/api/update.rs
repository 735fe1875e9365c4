//! Changing the parameters of instantiated graphs.

use std::sync::Arc;

use retrograph_driver_sys::*;

use crate::argument::{Call, In, Out};
use crate::refusal::{Refusal, invalid, refuse};
use crate::state::{NodeKind, State};
use crate::work::{Copy, End, Fill, Operation, Plan, PlanNode, PlanWork};

/// What `cuGraphExecUpdate_v2` refuses, and where: the node and where a differing edge starts.
pub(super) type Difference = (CUgraphExecUpdateResult, CUgraphNode, CUgraphNode);

impl State {
    /// A node of an instantiated graph, to read.
    fn exec_node(
        &mut self,
        exec: CUgraphExec,
        node: CUgraphNode,
    ) -> Result<&mut PlanNode, Refusal> {
        let exec = self.given_exec(exec)?;
        let node = self.given_node(node)?;
        let exec = self.execs.get_mut(exec)?;
        // Launches that are queued keep the values that they were launched with.
        Arc::make_mut(&mut exec.plan).find(node).ok_or(invalid("graph.not_in_exec"))
    }

    /// A node of an instantiated graph that is of a kind.
    pub(super) fn check_exec_node(
        &mut self,
        exec: CUgraphExec,
        node: CUgraphNode,
        kind: CUgraphNodeType,
    ) -> Call {
        self.exec_node(exec, node)?;
        match self.nodes.get(node)?.kind.node_type() == kind {
            true => Ok(()),
            false => Err(invalid("graph.another_kind")),
        }
    }

    /// Replaces what one node does by something of the same kind.
    pub(super) fn set_exec_node(
        &mut self,
        exec: CUgraphExec,
        node: CUgraphNode,
        kind: &NodeKind,
    ) -> Call {
        let found = self.exec_node(exec, node)?;
        match (&mut found.work, kind) {
            (PlanWork::Operation(old), NodeKind::Operation(new)) => {
                replaceable(old, new).map_err(|_| invalid("graph.not_replaceable"))?;
                *old = new.clone();
            }
            (PlanWork::Record(old), NodeKind::Record(new))
            | (PlanWork::Wait(old), NodeKind::Wait(new)) => *old = *new,
            (PlanWork::Empty, NodeKind::Empty) => {}
            _ => return Err(invalid("graph.another_kind")),
        }
        Ok(())
    }

    pub(crate) fn cuGraphExecKernelNodeSetParams_v2(
        &mut self,
        exec: CUgraphExec,
        node: CUgraphNode,
        parameters: In<CUDA_KERNEL_NODE_PARAMS>,
    ) -> Call {
        self.check_exec_node(exec, node, CUgraphNodeType::CU_GRAPH_NODE_TYPE_KERNEL)?;
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
        self.check_exec_node(exec, node, CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMCPY)?;
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
        self.check_exec_node(exec, node, CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMSET)?;
        let kind = self.fill_kind(&parameters.get()?, context)?;
        self.set_exec_node(exec, node, &kind)
    }

    pub(crate) fn cuGraphExecHostNodeSetParams(
        &mut self,
        exec: CUgraphExec,
        node: CUgraphNode,
        parameters: In<CUDA_HOST_NODE_PARAMS>,
    ) -> Call {
        self.check_exec_node(exec, node, CUgraphNodeType::CU_GRAPH_NODE_TYPE_HOST)?;
        let kind = self.host_kind(&parameters.get()?)?;
        self.set_exec_node(exec, node, &kind)
    }

    pub(crate) fn cuGraphExecEventRecordNodeSetEvent(
        &mut self,
        exec: CUgraphExec,
        node: CUgraphNode,
        event: CUevent,
    ) -> Call {
        self.check_exec_node(exec, node, CUgraphNodeType::CU_GRAPH_NODE_TYPE_EVENT_RECORD)?;
        let kind = self.record_kind(event)?;
        self.set_exec_node(exec, node, &kind)
    }

    pub(crate) fn cuGraphExecEventWaitNodeSetEvent(
        &mut self,
        exec: CUgraphExec,
        node: CUgraphNode,
        event: CUevent,
    ) -> Call {
        self.check_exec_node(exec, node, CUgraphNodeType::CU_GRAPH_NODE_TYPE_WAIT_EVENT)?;
        let kind = self.wait_kind(event)?;
        self.set_exec_node(exec, node, &kind)
    }

    pub(crate) fn cuGraphExecChildGraphNodeSetParams(
        &mut self,
        exec: CUgraphExec,
        node: CUgraphNode,
        child: CUgraph,
    ) -> Call {
        self.check_exec_node(exec, node, CUgraphNodeType::CU_GRAPH_NODE_TYPE_GRAPH)?;
        let child = self.given_graph(child)?;
        let new = self.plan(child).map_err(|(refusal, _)| refusal)?;
        match &mut self.exec_node(exec, node)?.work {
            PlanWork::Child(old) => {
                compare(old, &new).map_err(|_| {
                    let code = CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
                    refuse(code, "graph.another_shape")
                })?;
                adopt(old, new);
                Ok(())
            }
            _ => Err(invalid("graph.another_kind")),
        }
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
        enabled.demand()?;
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
        info.demand()?;
        let exec = self.given_exec(exec)?;
        let graph = self.given_graph(graph)?;
        let new = self.plan(graph).map_err(|(refusal, _)| refusal)?;
        let exec = self.execs.get_mut(exec)?;
        match compare(&exec.plan, &new) {
            Ok(()) => {
                adopt(Arc::make_mut(&mut exec.plan), new);
                info.put(CUgraphExecUpdateResultInfo::default())
            }
            Err((result, errorNode, errorFromNode)) => {
                info.put(CUgraphExecUpdateResultInfo { result, errorNode, errorFromNode })?;
                let code = CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
                Err(refuse(code, "graph.update"))
            }
        }
    }
}

/// Only what runs on the device can be switched off.
fn can_be_disabled(work: &PlanWork) -> Call {
    match work {
        PlanWork::Operation(Operation::Host(_)) => Err(invalid("graph.always_enabled")),
        PlanWork::Operation(_) => Ok(()),
        _ => Err(invalid("graph.always_enabled")),
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
        (Operation::Host(_), Operation::Host(_)) => Ok(()),
        _ => Err(R::CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED),
    }
}

fn is_device(end: &End) -> bool {
    matches!(end, End::Device(_))
}

/// Whether a plan has the shape of another one, node by node in the order of their creation.
fn compare(old: &Plan, new: &Plan) -> Result<(), Difference> {
    use CUgraphExecUpdateResult as R;
    const NONE: CUgraphNode = CUgraphNode::NULL;
    let topology = |node, from| (R::CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, node, from);
    if old.nodes.len() != new.nodes.len() {
        return Err(topology(NONE, NONE));
    }
    for (old, new) in old.nodes.iter().zip(&new.nodes) {
        match (&old.work, &new.work) {
            (PlanWork::Operation(old), PlanWork::Operation(replacement)) => {
                replaceable(old, replacement).map_err(|result| (result, new.source, NONE))?;
            }
            (PlanWork::Child(old), PlanWork::Child(replacement)) => compare(old, replacement)?,
            (PlanWork::Empty, PlanWork::Empty)
            | (PlanWork::Record(_), PlanWork::Record(_))
            | (PlanWork::Wait(_), PlanWork::Wait(_)) => {}
            (PlanWork::Alloc(_), PlanWork::Alloc(_)) | (PlanWork::Free(_), PlanWork::Free(_)) => {
                let result = R::CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
                return Err((result, new.source, NONE));
            }
            _ => return Err((R::CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, new.source, NONE)),
        }
        if old.dependencies != new.dependencies || old.ports != new.ports {
            return Err(topology(new.source, NONE));
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
