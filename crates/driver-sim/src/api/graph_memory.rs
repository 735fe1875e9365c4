//! Graph memory: allocation and free nodes, counters, trimming.

use std::ffi::c_void;

use retrograph_driver_sys::*;

use super::nodes::NewNode;
use crate::argument::{Admit, Call, In, Out};
use crate::refusal::{Refusal, Rule, invalid, refuse};
use crate::state::{NodeKind, State};

impl State {
    pub(crate) fn cuGraphAddMemAllocNode(
        &mut self,
        node: Out<CUgraphNode>,
        graph: CUgraph,
        dependencies: In<CUgraphNode>,
        count: usize,
        parameters: Out<CUDA_MEM_ALLOC_NODE_PARAMS>,
    ) -> Call {
        let new_node = NewNode { node, graph, dependencies, count };
        self.add(&new_node, |state| {
            let mut given = parameters.get()?;
            given.dptr = state.reserve_for_node(&given)?;
            parameters.write(given).map(|()| NodeKind::Alloc(given.dptr))
        })
    }

    /// Reserves the memory of an allocation node.
    pub(super) fn reserve_for_node(
        &mut self,
        given: &CUDA_MEM_ALLOC_NODE_PARAMS,
    ) -> Result<CUdeviceptr, Refusal> {
        let location = given.poolProps.location;
        let is_device = location.r#type == CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        let is_pinned =
            given.poolProps.allocType == CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        if !is_device || !is_pinned {
            return Err(invalid(Rule::GraphMemoryProperties));
        }
        if given.poolProps.handleTypes.0 != 0 {
            return Err(refuse(CUresult::CUDA_ERROR_NOT_SUPPORTED, Rule::GraphMemoryHandleTypes));
        }
        self.check_access(given)?;
        let known = usize::try_from(location.id).ok();
        let device = known.filter(|device| *device < self.config.devices);
        let device = device.ok_or(invalid(Rule::GraphMemoryDevice))?;
        self.reserve(device, given.bytesize as u64)
    }

    /// Checks access descriptors. The device of the allocation always has access.
    fn check_access(&mut self, given: &CUDA_MEM_ALLOC_NODE_PARAMS) -> Call {
        if given.accessDescCount == 0 {
            return Ok(());
        }
        if given.accessDescs.is_null() {
            return Err(self.undefined("the access descriptors are read through null"));
        }
        // SAFETY: like the parameters, the list is valid for its count during the call.
        let list = unsafe { given.accessDescs.admit() }.list(given.accessDescCount)?;
        for access in list {
            if access.location != given.poolProps.location {
                return Err(self.unsupported("memory of graphs for other devices"));
            }
            if access.flags != CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE {
                return Err(refuse(CUresult::CUDA_ERROR_NOT_SUPPORTED, Rule::GraphMemoryAccess));
            }
        }
        Ok(())
    }

    /// Refuses an address in an allocation that a node of this graph already frees.
    pub(super) fn refuse_freed(&self, graph: CUgraph, address: CUdeviceptr) -> Call {
        let base = self.graph_memory.range(..=address).next_back();
        let Some((base, _)) = base.filter(|_| self.is_reserved(address, 1)) else {
            return Ok(());
        };
        for node in &self.graphs.get(graph)?.nodes {
            if matches!(self.nodes.get(*node)?.kind, NodeKind::Free(freed) if freed == *base) {
                return Err(invalid(Rule::GraphMemoryFreed));
            }
        }
        Ok(())
    }

    pub(crate) fn cuGraphMemAllocNodeGetParams(
        &mut self,
        node: CUgraphNode,
        parameters: Out<CUDA_MEM_ALLOC_NODE_PARAMS>,
    ) -> Call {
        let node = self.known_node(node)?;
        let NodeKind::Alloc(address) = self.nodes.get(node)?.kind else {
            return Err(invalid(Rule::GraphAnotherKind));
        };
        let mut given = CUDA_MEM_ALLOC_NODE_PARAMS::default();
        given.poolProps.allocType = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        given.poolProps.location.r#type = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        given.bytesize = self.graph_memory[&address].bytes as usize;
        given.dptr = address;
        parameters.write(given)
    }

    pub(crate) fn cuGraphAddMemFreeNode(
        &mut self,
        node: Out<CUgraphNode>,
        graph: CUgraph,
        dependencies: In<CUgraphNode>,
        count: usize,
        address: CUdeviceptr,
    ) -> Call {
        self.add_free(&NewNode { node, graph, dependencies, count }, address)
    }

    /// Adds a node that frees the memory of an allocation node.
    pub(super) fn add_free(&mut self, new_node: &NewNode, address: CUdeviceptr) -> Call {
        self.add(new_node, |state| {
            if !state.graph_memory.contains_key(&address) {
                return Err(invalid(Rule::GraphMemoryUnknown));
            }
            state.refuse_freed(new_node.graph, address).map(|()| NodeKind::Free(address))
        })
    }

    pub(crate) fn cuGraphMemFreeNodeGetParams(
        &mut self,
        node: CUgraphNode,
        address: Out<CUdeviceptr>,
    ) -> Call {
        let node = self.known_node(node)?;
        match self.nodes.get(node)?.kind {
            NodeKind::Free(found) => address.write(found),
            _ => Err(invalid(Rule::GraphAnotherKind)),
        }
    }

    pub(crate) fn cuDeviceGetGraphMemAttribute(
        &mut self,
        device: CUdevice,
        attribute: CUgraphMem_attribute,
        value: Out<c_void>,
    ) -> Call {
        use CUgraphMem_attribute as A;
        let device = self.device_index(device)?;
        let usage = self.graph_usage.get(&device).copied().unwrap_or_default();
        let number = match attribute {
            A::CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT => usage.used,
            A::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH => usage.used_high,
            A::CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT => usage.reserved,
            A::CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH => usage.reserved_high,
            _ => return Err(invalid(Rule::GraphMemoryAttribute)),
        };
        value.cast().write(number)
    }

    pub(crate) fn cuDeviceSetGraphMemAttribute(
        &mut self,
        device: CUdevice,
        attribute: CUgraphMem_attribute,
        value: Out<c_void>,
    ) -> Call {
        use CUgraphMem_attribute as A;
        let device = self.device_index(device)?;
        let given: u64 = value.cast().get()?;
        let usage = self.graph_usage.entry(device).or_default();
        let (high, now) = match attribute {
            A::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH => (&mut usage.used_high, usage.used),
            A::CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH => (&mut usage.reserved_high, usage.reserved),
            _ => return Err(invalid(Rule::GraphMemoryAttribute)),
        };
        if given != 0 {
            return Err(invalid(Rule::GraphMemoryReset));
        }
        *high = now;
        Ok(())
    }

    pub(crate) fn cuDeviceGraphMemTrim(&mut self, device: CUdevice) -> Call {
        let device = self.device_index(device)?;
        let live = self.live_graph_memory(device);
        let usage = self.graph_usage.entry(device).or_default();
        (usage.used, usage.reserved) = (live, live);
        Ok(())
    }
}
