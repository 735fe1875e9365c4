//! Updates of instantiated graphs.

mod compare;

use std::sync::Arc;

use retrograph_driver_sys::*;

use self::compare::{ANOTHER_SHAPE, adopt, compare, replaceable};
use crate::argument::{Call, In, Out};
use crate::refusal::{Refusal, Rule, invalid, refuse};
use crate::state::{NodeKind, State};
use crate::work::{Operation, PlanNode, PlanWork};

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
                let new = new.clone().in_place_of(old);
                if matches!(&new, Operation::Launch(launch) if !launch.has_whole_clusters()) {
                    let code = CUresult::CUDA_ERROR_INVALID_CLUSTER_SIZE;
                    return Err(refuse(code, Rule::ClusterGrid));
                }
                let found = self.exec_node(exec, node)?;
                found.work = PlanWork::Operation(new);
            }
            (PlanWork::Record(old), NodeKind::Record(new))
            | (PlanWork::Wait(old), NodeKind::Wait(new)) => *old = *new,
            (PlanWork::Empty, NodeKind::Empty) => {}
            _ => return Err(invalid(Rule::GraphAnotherKind)),
        }
        Ok(())
    }

    /// Fails if `context` is null and no live context is current. Adding such a node succeeds.
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
        if self.is_conditional(child)? {
            return Err(self.unsupported("a child graph with conditional nodes as parameters"));
        }
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
        enabled.write(u32::from(found.is_enabled))
    }

    pub(crate) fn cuGraphExecUpdate_v2(
        &mut self,
        exec: CUgraphExec,
        graph: CUgraph,
        info: Out<CUgraphExecUpdateResultInfo>,
    ) -> Call {
        info.write_unless_null(CUgraphExecUpdateResultInfo::default());
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
                info.write_unless_null(CUgraphExecUpdateResultInfo {
                    result,
                    errorNode,
                    errorFromNode,
                });
                let code = CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
                Err(refuse(code, Rule::GraphUpdate))
            }
        }
    }
}

/// Refuses to disable nodes other than kernels, copies and fills.
fn can_be_disabled(work: &PlanWork) -> Call {
    match work {
        PlanWork::Operation(Operation::Host(_)) => Err(invalid(Rule::GraphAlwaysEnabled)),
        PlanWork::Operation(_) => Ok(()),
        _ => Err(invalid(Rule::GraphAlwaysEnabled)),
    }
}
