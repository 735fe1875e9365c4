//! Nodes of any kind through `CUgraphNodeParams`: `cuGraphAddNode`, `cuGraphNodeSetParams`,
//! `cuGraphExecNodeSetParams`.

use retrograph_driver_sys::*;

use super::edges::kinds;
use super::nodes::NewNode;
use crate::argument::{Call, In, Out};
use crate::refusal::{Refusal, Rule, invalid, refuse};
use crate::state::{NodeKind, Owner, State};

/// Converts the parameters, without the context.
fn fill_of(given: &CUDA_MEMSET_NODE_PARAMS_v2) -> CUDA_MEMSET_NODE_PARAMS {
    CUDA_MEMSET_NODE_PARAMS {
        dst: given.dst,
        pitch: given.pitch,
        value: given.value,
        elementSize: given.elementSize,
        width: given.width,
        height: given.height,
    }
}

impl State {
    /// Returns the node kind of parameters that describe it completely.
    fn generic_kind(&mut self, given: &CUgraphNodeParams) -> Result<NodeKind, Refusal> {
        use CUgraphNodeType as T;
        let union = &given.anonymous;
        // SAFETY: `type` selects the union field that the caller filled; every field is plain data
        // that is valid for any bytes.
        unsafe {
            match given.r#type {
                T::CU_GRAPH_NODE_TYPE_KERNEL => self.kernel_kind(&union.kernel),
                T::CU_GRAPH_NODE_TYPE_MEMCPY => {
                    let context = self.context_or_current(union.memcpy.copyCtx)?;
                    self.copy_kind(&union.memcpy.copyParams, context)
                }
                T::CU_GRAPH_NODE_TYPE_MEMSET => {
                    let context = self.context_or_current(union.memset.ctx)?;
                    self.fill_kind(&fill_of(&union.memset), context)
                }
                T::CU_GRAPH_NODE_TYPE_HOST => self.host_kind(&union.host),
                T::CU_GRAPH_NODE_TYPE_EMPTY => Ok(NodeKind::Empty),
                T::CU_GRAPH_NODE_TYPE_EVENT_RECORD => self.record_kind(union.eventRecord.event),
                T::CU_GRAPH_NODE_TYPE_WAIT_EVENT => self.wait_kind(union.eventWait.event),
                T::CU_GRAPH_NODE_TYPE_CONDITIONAL
                | T::CU_GRAPH_NODE_TYPE_BATCH_MEM_OP
                | T::CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL
                | T::CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT => {
                    Err(self.unsupported(format!("nodes of {:?}", given.r#type)))
                }
                _ => Err(invalid(Rule::GraphNodeType)),
            }
        }
    }

    fn context_or_current(&mut self, context: CUcontext) -> Result<CUcontext, Refusal> {
        if !context.is_null() {
            return Ok(context);
        }
        let device = self.current()?;
        Ok(self.devices[device].context.unwrap_or(CUcontext::NULL))
    }

    pub(crate) fn cuGraphAddNode_v2(
        &mut self,
        node: Out<CUgraphNode>,
        graph: CUgraph,
        dependencies: In<CUgraphNode>,
        data: In<CUgraphEdgeData>,
        count: usize,
        parameters: Out<CUgraphNodeParams>,
    ) -> Call {
        let new_node = NewNode { node, graph, dependencies, count };
        let given = parameters.get()?;
        let from = self.check_new_node(&new_node)?;
        if given.reserved0 != [0; 3] || given.reserved2 != 0 {
            return Err(invalid(Rule::GraphReserved));
        }
        let is_kernel = given.r#type == CUgraphNodeType::CU_GRAPH_NODE_TYPE_KERNEL;
        let edges: Vec<_> = from.into_iter().zip(kinds(data, count)?).collect();
        for (from, data) in &edges {
            self.check_kind(*from, is_kernel, *data)?;
        }
        self.add_generic(&new_node, given, parameters)?;
        let edge_data = edges.into_iter().filter(|(_, data)| *data != CUgraphEdgeData::default());
        self.nodes.get_mut(node.get()?)?.edge_data = edge_data.collect();
        Ok(())
    }

    pub(crate) fn cuGraphAddNode(
        &mut self,
        node: Out<CUgraphNode>,
        graph: CUgraph,
        dependencies: In<CUgraphNode>,
        count: usize,
        parameters: Out<CUgraphNodeParams>,
    ) -> Call {
        self.cuGraphAddNode_v2(node, graph, dependencies, In::NULL, count, parameters)
    }

    fn add_generic(
        &mut self,
        new_node: &NewNode,
        mut given: CUgraphNodeParams,
        parameters: Out<CUgraphNodeParams>,
    ) -> Call {
        use CUgraphNodeType as T;
        match given.r#type {
            T::CU_GRAPH_NODE_TYPE_GRAPH => {
                // SAFETY: `type` selects this field, which is plain data.
                let child = unsafe { given.anonymous.graph };
                match child.ownership {
                    CUgraphChildGraphNodeOwnership::CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE => {
                        self.move_child(new_node, child.graph)
                    }
                    _ => self.add_child(new_node, child.graph),
                }
            }
            T::CU_GRAPH_NODE_TYPE_MEM_ALLOC => {
                // SAFETY: as above.
                let mut allocation = unsafe { given.anonymous.alloc };
                self.add(new_node, |state| {
                    allocation.dptr = state.reserve_for_node(&allocation)?;
                    given.anonymous.alloc = allocation;
                    parameters.write(given).map(|()| NodeKind::Alloc(allocation.dptr))
                })
            }
            T::CU_GRAPH_NODE_TYPE_MEM_FREE => {
                // SAFETY: as above.
                let address = unsafe { given.anonymous.free.dptr };
                self.add_free(new_node, address)
            }
            T::CU_GRAPH_NODE_TYPE_CONDITIONAL => self.add(new_node, |state| {
                // SAFETY: as above.
                let conditional = unsafe { &mut given.anonymous.conditional };
                let kind = state.conditional_kind(new_node.graph, conditional)?;
                parameters.write(given).map(|()| kind)
            }),
            _ => self.add(new_node, |state| state.generic_kind(&given)),
        }
    }

    /// Adds a child-graph node that takes ownership of `child`.
    fn move_child(&mut self, new_node: &NewNode, child: CUgraph) -> Call {
        let child = self.known_graph(child)?;
        if self.is_conditional(child)? {
            let code = CUresult::CUDA_ERROR_NOT_SUPPORTED;
            return Err(refuse(code, Rule::GraphConditionalCopy));
        }
        if child == new_node.graph || self.graphs.get(child)?.is_owned() {
            return Err(self.unsupported("a child graph that is the graph itself or has an owner"));
        }
        self.add(new_node, |_| Ok(NodeKind::Child(child)))?;
        self.graphs.get_mut(child)?.owner = Owner::Node;
        Ok(())
    }

    /// Refuses changes of nodes that allocate or free, and of conditional nodes.
    fn refuse_fixed_node(&self, node: CUgraphNode, given: &CUgraphNodeParams) -> Call {
        let code = CUresult::CUDA_ERROR_NOT_SUPPORTED;
        match &self.nodes.get(node)?.kind {
            NodeKind::Conditional(_)
                if given.r#type == CUgraphNodeType::CU_GRAPH_NODE_TYPE_CONDITIONAL =>
            {
                Err(refuse(code, Rule::GraphConditionalFixed))
            }
            kind if kind.is_memory() => Err(refuse(code, Rule::GraphMemoryFixed)),
            _ => Ok(()),
        }
    }

    pub(crate) fn cuGraphNodeSetParams(
        &mut self,
        node: CUgraphNode,
        parameters: Out<CUgraphNodeParams>,
    ) -> Call {
        let node = self.known_node(node)?;
        let given = parameters.get()?;
        self.refuse_fixed_node(node, &given)?;
        if let NodeKind::Child(old) = self.nodes.get(node)?.kind
            && given.r#type == CUgraphNodeType::CU_GRAPH_NODE_TYPE_GRAPH
        {
            // SAFETY: `type` selects this field, which is plain data.
            let child = self.known_graph(unsafe { given.anonymous.graph.graph })?;
            if self.is_conditional(child)? {
                return Err(self.unsupported("a child graph with conditional nodes as parameters"));
            }
            let copy = self.clone_graph(child, Owner::Node)?;
            self.drop_graph(old)?;
            return self.set_node(node, NodeKind::Child(copy));
        }
        let kind = self.generic_kind(&given)?;
        self.set_node(node, kind)
    }

    pub(crate) fn cuGraphExecNodeSetParams(
        &mut self,
        exec: CUgraphExec,
        node: CUgraphNode,
        parameters: Out<CUgraphNodeParams>,
    ) -> Call {
        let exec = self.known_exec(exec)?;
        let node = self.known_node(node)?;
        let given = parameters.get()?;
        self.refuse_fixed_node(node, &given)?;
        if given.r#type == CUgraphNodeType::CU_GRAPH_NODE_TYPE_GRAPH {
            // SAFETY: `type` selects this field, which is plain data.
            let child = unsafe { given.anonymous.graph.graph };
            return self.cuGraphExecChildGraphNodeSetParams(exec, node, child);
        }
        let kind = self.generic_kind(&given)?;
        self.set_exec_node(exec, node, &kind)
    }
}
