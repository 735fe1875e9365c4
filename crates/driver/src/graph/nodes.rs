//! Adding nodes and edges.

use std::sync::Arc;

use retrograph_driver_sys::{
    CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC, CUDA_KERNEL_NODE_PARAMS, CUDA_MEMCPY3D,
    CUDA_MEMSET_NODE_PARAMS, CUdeviceptr, CUgraphDependencyType, CUgraphEdgeData, CUgraphNode,
    CUlaunchAttributeID, CUlaunchAttributeValue,
};

use super::inspect::NodeKind;
use super::template::{Graph, Node};
use crate::error::{Error, Result};
use crate::event::Event;
use crate::launch::KernelLaunch;

/// A copy within device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemcpyParams {
    /// Destination address.
    pub dst: CUdeviceptr,
    /// Source address.
    pub src: CUdeviceptr,
    /// Size in bytes.
    pub bytes: usize,
}

/// A fill of device memory with a 32-bit pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemsetParams {
    /// Destination address, a multiple of 4.
    pub dst: CUdeviceptr,
    /// The pattern.
    pub value: u32,
    /// Number of 32-bit words.
    pub words: usize,
}

impl Graph {
    /// Adds a kernel launch that runs after `after`. The graph keeps the function's module, and the
    /// memory of [`KernelArguments::buffer`](crate::KernelArguments::buffer).
    ///
    /// # Safety
    /// As [`crate::Stream::launch`], for every launch of the graph.
    ///
    /// # Errors
    /// If the arguments do not match the function's parameters, a node belongs to another graph, or
    /// the driver fails. If it refuses an attribute, the node is removed again. The driver takes a
    /// cluster size only after the node was added, so it may refuse functions that are declared
    /// `.explicitcluster`; capture their launches instead.
    pub unsafe fn add_kernel(&mut self, launch: &KernelLaunch<'_>, after: &[Node]) -> Result<Node> {
        self.context.same(launch.function.context(), "the function")?;
        launch.check()?;
        let mut arguments = launch.arguments.pointers();
        let params = kernel_params(launch, &mut arguments);
        let node = self.add(after, |graph, node, dependencies, count| {
            // SAFETY: the driver copies the arguments, which were checked if it reports parameter
            // sizes; the caller upholds the rest.
            unsafe {
                call!(
                    graph.context,
                    cuGraphAddKernelNode_v2(node, graph.raw, dependencies, count, &params)
                )
            }
        })?;
        self.set_launch_attributes(node, &launch.attributes.full_stream_serialization())?;
        launch.owners().for_each(|owner| self.keep(owner));
        Ok(node)
    }

    /// Adds a copy that runs after `after`.
    ///
    /// # Safety
    /// Both ranges must be valid and unused by other work whenever the graph runs, and must not
    /// overlap.
    ///
    /// # Errors
    /// If a node belongs to another graph, or the driver fails.
    pub unsafe fn add_memcpy(&mut self, copy: &MemcpyParams, after: &[Node]) -> Result<Node> {
        let params = copy_params(copy);
        self.add(after, |graph, node, dependencies, count| {
            let (raw, context) = (graph.raw, graph.context.raw());
            // SAFETY: the parameters outlive the call; the caller vouches for the ranges.
            unsafe {
                call!(
                    graph.context,
                    cuGraphAddMemcpyNode(node, raw, dependencies, count, &params, context)
                )
            }
        })
    }

    /// Adds a fill that runs after `after`.
    ///
    /// # Safety
    /// The range must be valid and unused by other work whenever the graph runs.
    ///
    /// # Errors
    /// If a node belongs to another graph, or the driver fails.
    pub unsafe fn add_memset(&mut self, fill: &MemsetParams, after: &[Node]) -> Result<Node> {
        let params = fill_params(fill);
        self.add(after, |graph, node, dependencies, count| {
            let (raw, context) = (graph.raw, graph.context.raw());
            // SAFETY: the parameters outlive the call; the caller vouches for the range.
            unsafe {
                call!(
                    graph.context,
                    cuGraphAddMemsetNode(node, raw, dependencies, count, &params, context)
                )
            }
        })
    }

    /// Adds an empty node that waits for `after`.
    ///
    /// # Errors
    /// If a node belongs to another graph, or the driver fails.
    pub fn add_empty(&mut self, after: &[Node]) -> Result<Node> {
        self.add(after, |graph, node, dependencies, count| {
            // SAFETY: the dependencies belong to the graph.
            unsafe {
                call!(graph.context, cuGraphAddEmptyNode(node, graph.raw, dependencies, count))
            }
        })
    }

    /// Adds a node that records `event` after `after`, and keeps the event. After a launch,
    /// [`Event::elapsed_ms`] returns the time between two such nodes.
    ///
    /// # Errors
    /// If the event belongs to another context or a node to another graph, or the driver fails.
    pub fn add_event_record(&mut self, event: &Arc<Event>, after: &[Node]) -> Result<Node> {
        self.context.same(event.context(), "the event")?;
        let node = self.add(after, |graph, node, dependencies, count| {
            let (raw, event) = (graph.raw, event.raw());
            // SAFETY: the event lives, and the graph keeps it from here on.
            unsafe {
                call!(
                    graph.context,
                    cuGraphAddEventRecordNode(node, raw, dependencies, count, event)
                )
            }
        })?;
        self.keep(event.clone());
        Ok(node)
    }

    /// Adds a copy of `child` as one node, and keeps the owners of `child`.
    ///
    /// # Errors
    /// If the graphs belong to different contexts, a node belongs to another graph, or the driver
    /// fails.
    pub fn add_child_graph(&mut self, child: &Self, after: &[Node]) -> Result<Node> {
        self.context.same(&child.context, "the child graph")?;
        let node = self.add(after, |graph, node, dependencies, count| {
            // SAFETY: both graphs live, and the driver copies the child.
            unsafe {
                call!(
                    graph.context,
                    cuGraphAddChildGraphNode(node, graph.raw, dependencies, count, child.raw)
                )
            }
        })?;
        self.owners.extend(&child.owners);
        self.prioritized |= child.prioritized;
        Ok(node)
    }

    /// Sets the priority of a kernel node: if blocks of several nodes compete for the device,
    /// blocks with the lowest number are scheduled first. The default is 0; the driver clamps the
    /// number to the device's range. Running blocks are not preempted, and results do not depend on
    /// it.
    ///
    /// # Errors
    /// If the node belongs to another graph or is not a kernel node, or the driver fails.
    pub fn set_priority(&mut self, node: Node, priority: i32) -> Result<()> {
        self.check_nodes(&[node])?;
        self.context.bind()?;
        let attribute = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PRIORITY;
        let value = CUlaunchAttributeValue { priority };
        // SAFETY: the node belongs to this graph, and the value is of the attribute's type.
        unsafe { call!(self.context, cuGraphKernelNodeSetAttribute(node.raw, attribute, &value)) }?;
        self.prioritized = true;
        Ok(())
    }

    /// Makes `later` run after `earlier`.
    ///
    /// # Errors
    /// If a node belongs to another graph, the edge exists, or the driver fails. A cycle is
    /// detected when the graph is instantiated.
    pub fn add_edge(&mut self, earlier: Node, later: Node) -> Result<()> {
        self.check_nodes(&[earlier, later])?;
        self.context.bind()?;
        let (from, to) = (earlier.raw, later.raw);
        // SAFETY: both nodes belong to this graph, and the out pointers are valid.
        unsafe { call!(self.context, cuGraphAddDependencies(self.raw, &from, &to, 1)) }
    }

    /// Whether a programmatic edge can start at `earlier`: it must be a kernel node, and the driver
    /// must support edge data (CUDA 12.3 or newer).
    ///
    /// # Errors
    /// If the node belongs to another graph, or the driver fails.
    pub fn allows_programmatic_edge(&self, earlier: Node) -> Result<bool> {
        let table = self.context.table();
        let known = table.cuGraphAddDependencies_v2.is_some() && table.cuGraphGetEdges_v2.is_some();
        Ok(known && self.kind(earlier)? == NodeKind::Kernel)
    }

    /// Adds a programmatic edge (programmatic dependent launch, PDL): the kernel node `later` may
    /// start once every block of the kernel node `earlier` has exited or has executed
    /// `griddepcontrol.launch_dependents`.
    ///
    /// # Safety
    /// Every thread of `later` must execute `griddepcontrol.wait` before it accesses global memory
    /// and before it exits.
    ///
    /// # Errors
    /// If a node belongs to another graph or is not a kernel node, the edge exists, the driver
    /// fails, or it does not support edge data (CUDA 12.3 introduced it).
    pub unsafe fn add_programmatic_edge(&mut self, earlier: Node, later: Node) -> Result<()> {
        self.check_nodes(&[earlier, later])?;
        self.context.bind()?;
        let call = "cuGraphAddDependencies_v2";
        let Some(add) = self.context.table().cuGraphAddDependencies_v2 else {
            return Err(Error::NotInDriver { call, operation: "a programmatic edge" });
        };
        let data = CUgraphEdgeData {
            from_port: CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
            r#type: CUgraphDependencyType::CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC.0 as u8,
            ..CUgraphEdgeData::default()
        };
        let (from, to) = (earlier.raw, later.raw);
        // SAFETY: both nodes belong to this graph, and the out pointers are valid; the caller
        // promises that the later kernel waits.
        self.context.check(call, unsafe { add(self.raw, &from, &to, &data, 1) })
    }

    /// Adds a node of any kind by `add`.
    fn add<F>(&mut self, after: &[Node], add: F) -> Result<Node>
    where
        F: FnOnce(&Self, *mut CUgraphNode, *const CUgraphNode, usize) -> Result<()>,
    {
        self.check_nodes(after)?;
        self.context.bind()?;
        let dependencies: Vec<CUgraphNode> = after.iter().map(|node| node.raw).collect();
        let pointer =
            if dependencies.is_empty() { std::ptr::null() } else { dependencies.as_ptr() };
        let mut node = CUgraphNode::NULL;
        add(self, &mut node, pointer, dependencies.len())?;
        Ok(self.node(node))
    }
}

/// The driver's parameters of a launch. They point to `arguments`.
pub(super) fn kernel_params(
    launch: &KernelLaunch<'_>,
    arguments: &mut [*mut std::ffi::c_void],
) -> CUDA_KERNEL_NODE_PARAMS {
    let ([x, y, z], [bx, by, bz]) = (launch.geometry.grid, launch.geometry.block);
    CUDA_KERNEL_NODE_PARAMS {
        func: launch.function.raw(),
        gridDimX: x,
        gridDimY: y,
        gridDimZ: z,
        blockDimX: bx,
        blockDimY: by,
        blockDimZ: bz,
        sharedMemBytes: launch.geometry.shared_bytes,
        kernelParams: arguments.as_mut_ptr(),
        ..CUDA_KERNEL_NODE_PARAMS::default()
    }
}

/// The driver's parameters of a copy.
pub(super) fn copy_params(copy: &MemcpyParams) -> CUDA_MEMCPY3D {
    CUDA_MEMCPY3D::device_to_device(copy.dst, copy.src, copy.bytes)
}

/// The driver's parameters of a fill.
pub(super) fn fill_params(fill: &MemsetParams) -> CUDA_MEMSET_NODE_PARAMS {
    CUDA_MEMSET_NODE_PARAMS {
        dst: fill.dst,
        pitch: 0,
        value: fill.value,
        elementSize: 4,
        width: fill.words,
        height: 1,
    }
}
