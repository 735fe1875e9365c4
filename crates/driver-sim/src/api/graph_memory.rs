//! Memory of graphs: allocation and free nodes, counters, trimming.

use std::ffi::c_void;

use retrograph_driver_sys::*;

use super::nodes::Place;
use crate::argument::{Call, In, Out};
use crate::refusal::{Refusal, invalid};
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
        let place = Place { node, graph, dependencies, count };
        self.check_place(&place)?;
        parameters.demand()?;
        let mut given = parameters.get()?;
        given.dptr = self.reserve_for_node(&given)?;
        parameters.put(given)?;
        self.add(&place, NodeKind::Alloc(given.dptr))
    }

    /// Reserves what an allocation node asks for.
    pub(super) fn reserve_for_node(
        &mut self,
        given: &CUDA_MEM_ALLOC_NODE_PARAMS,
    ) -> Result<CUdeviceptr, Refusal> {
        let location = given.poolProps.location;
        let is_device = location.r#type == CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        let is_pinned =
            given.poolProps.allocType == CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        if !is_device || !is_pinned || given.poolProps.handleTypes.0 != 0 {
            return Err(invalid("graph_memory.properties"));
        }
        if given.accessDescCount != 0 {
            return Err(self.unsupported("access descriptions of allocation nodes"));
        }
        let known = usize::try_from(location.id).ok();
        let device = known.filter(|device| *device < self.config.devices);
        let device = device.ok_or(invalid("graph_memory.device"))?;
        self.reserve(device, given.bytesize as u64)
    }

    pub(crate) fn cuGraphMemAllocNodeGetParams(
        &mut self,
        node: CUgraphNode,
        parameters: Out<CUDA_MEM_ALLOC_NODE_PARAMS>,
    ) -> Call {
        let node = self.given_node(node)?;
        parameters.demand()?;
        let NodeKind::Alloc(address) = self.nodes.get(node)?.kind else {
            return Err(invalid("graph.another_kind"));
        };
        let found = self.graph_memory.get(&address).ok_or(invalid("graph_memory.unknown"))?;
        let mut given = CUDA_MEM_ALLOC_NODE_PARAMS::default();
        given.poolProps.allocType = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        given.poolProps.location.r#type = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        given.bytesize = found.bytes as usize;
        given.dptr = address;
        parameters.put(given)
    }

    pub(crate) fn cuGraphAddMemFreeNode(
        &mut self,
        node: Out<CUgraphNode>,
        graph: CUgraph,
        dependencies: In<CUgraphNode>,
        count: usize,
        address: CUdeviceptr,
    ) -> Call {
        self.add_free(&Place { node, graph, dependencies, count }, address)
    }

    /// Adds a node that frees what an allocation node made.
    pub(super) fn add_free(&mut self, place: &Place, address: CUdeviceptr) -> Call {
        let dependencies = self.check_place(place)?;
        if !self.graph_memory.contains_key(&address) {
            return Err(invalid("graph_memory.unknown"));
        }
        let (mut made, mut is_freed) = (None, false);
        for node in &self.graphs.get(place.graph)?.nodes {
            match self.nodes.get(*node)?.kind {
                NodeKind::Alloc(other) if other == address => made = Some(*node),
                NodeKind::Free(other) if other == address => is_freed = true,
                _ => {}
            }
        }
        let is_behind = made.is_none_or(|made| self.ancestors(&dependencies).contains(&made));
        if is_freed || !is_behind {
            return Err(invalid("graph_memory.free"));
        }
        self.add(place, NodeKind::Free(address))
    }

    pub(crate) fn cuGraphMemFreeNodeGetParams(
        &mut self,
        node: CUgraphNode,
        address: Out<CUdeviceptr>,
    ) -> Call {
        let node = self.given_node(node)?;
        address.demand()?;
        match self.nodes.get(node)?.kind {
            NodeKind::Free(found) => address.put(found),
            _ => Err(invalid("graph.another_kind")),
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
        value.demand()?;
        let usage = self.graph_usage.get(&device).copied().unwrap_or_default();
        let number = match attribute {
            A::CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT => usage.used,
            A::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH => usage.used_high,
            A::CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT => usage.reserved,
            A::CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH => usage.reserved_high,
            _ => return Err(invalid("graph_memory.attribute")),
        };
        value.cast().put(number)
    }

    pub(crate) fn cuDeviceSetGraphMemAttribute(
        &mut self,
        device: CUdevice,
        attribute: CUgraphMem_attribute,
        value: Out<c_void>,
    ) -> Call {
        use CUgraphMem_attribute as A;
        let device = self.device_index(device)?;
        value.demand()?;
        let given: u64 = value.cast().get()?;
        let usage = self.graph_usage.entry(device).or_default();
        let (high, now) = match attribute {
            A::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH => (&mut usage.used_high, usage.used),
            A::CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH => (&mut usage.reserved_high, usage.reserved),
            _ => return Err(invalid("graph_memory.attribute")),
        };
        if given != 0 {
            return Err(invalid("graph_memory.reset"));
        }
        *high = now;
        Ok(())
    }

    pub(crate) fn cuDeviceGraphMemTrim(&mut self, device: CUdevice) -> Call {
        let device = self.device_index(device)?;
        let usage = self.graph_usage.entry(device).or_default();
        usage.reserved = usage.used;
        Ok(())
    }
}
