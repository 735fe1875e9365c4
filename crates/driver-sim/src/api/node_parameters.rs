//! Parameter updates of nodes of graph templates.

use retrograph_driver_sys::*;

use crate::argument::{Call, In};
use crate::refusal::{Refusal, Rule, invalid};
use crate::state::{NodeKind, State};
use crate::work::Operation;

impl State {
    /// The node of a handle, if it has the kind that the call needs.
    fn node_of_kind(
        &mut self,
        node: CUgraphNode,
        kind: CUgraphNodeType,
    ) -> Result<CUgraphNode, Refusal> {
        let node = self.known_node(node)?;
        match self.nodes.get(node)?.kind.node_type() == kind {
            true => Ok(node),
            false => Err(invalid(Rule::GraphAnotherKind)),
        }
    }

    pub(crate) fn cuGraphKernelNodeSetParams_v2(
        &mut self,
        node: CUgraphNode,
        parameters: In<CUDA_KERNEL_NODE_PARAMS>,
    ) -> Call {
        let node = self.node_of_kind(node, CUgraphNodeType::CU_GRAPH_NODE_TYPE_KERNEL)?;
        let kind = self.kernel_kind(&parameters.get()?)?;
        let cluster = self.nodes.get(node)?.cluster();
        self.check_cluster_of(cluster, &kind)?;
        self.set_node(node, kind)
    }

    pub(crate) fn cuGraphMemcpyNodeSetParams(
        &mut self,
        node: CUgraphNode,
        parameters: In<CUDA_MEMCPY3D>,
    ) -> Call {
        let node = self.node_of_kind(node, CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMCPY)?;
        self.refuse_lost()?;
        let kind = self.copy_node(&parameters.get()?)?;
        self.set_node(node, kind)
    }

    pub(crate) fn cuGraphMemsetNodeSetParams(
        &mut self,
        node: CUgraphNode,
        parameters: In<CUDA_MEMSET_NODE_PARAMS>,
    ) -> Call {
        let node = self.node_of_kind(node, CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMSET)?;
        self.refuse_lost()?;
        let device = match self.nodes.get(node)?.kind {
            NodeKind::Operation(Operation::Fill(fill)) => Some(fill.device),
            _ => None,
        };
        let kind = self.fill_node(&parameters.get()?, device)?;
        self.set_node(node, kind)
    }

    pub(crate) fn cuGraphHostNodeSetParams(
        &mut self,
        node: CUgraphNode,
        parameters: In<CUDA_HOST_NODE_PARAMS>,
    ) -> Call {
        let node = self.node_of_kind(node, CUgraphNodeType::CU_GRAPH_NODE_TYPE_HOST)?;
        let kind = self.host_kind(&parameters.get()?)?;
        self.set_node(node, kind)
    }

    pub(crate) fn cuGraphEventRecordNodeSetEvent(
        &mut self,
        node: CUgraphNode,
        event: CUevent,
    ) -> Call {
        let node = self.node_of_kind(node, CUgraphNodeType::CU_GRAPH_NODE_TYPE_EVENT_RECORD)?;
        let kind = self.record_kind(event)?;
        self.set_node(node, kind)
    }

    pub(crate) fn cuGraphEventWaitNodeSetEvent(
        &mut self,
        node: CUgraphNode,
        event: CUevent,
    ) -> Call {
        let node = self.node_of_kind(node, CUgraphNodeType::CU_GRAPH_NODE_TYPE_WAIT_EVENT)?;
        let kind = self.wait_kind(event)?;
        self.set_node(node, kind)
    }
}
