//! Adding nodes and edges.

use std::sync::Arc;

use retrograph_driver_sys::{
    CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC, CUDA_KERNEL_NODE_PARAMS, CUDA_MEMCPY3D,
    CUDA_MEMSET_NODE_PARAMS, CUdeviceptr, CUgraphDependencyType, CUgraphEdgeData, CUgraphNode,
    CUlaunchAttributeID, CUlaunchAttributeValue,
};

use super::NodeKind;
use super::{Graph, Node};
use crate::error::{Error, Result};
use crate::event::Event;
use crate::launch::KernelLaunch;

/// A copy of bytes within the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceCopy {
    /// Where to.
    pub target: CUdeviceptr,
    /// Where from.
    pub source: CUdeviceptr,
    /// How many bytes.
    pub bytes: usize,
}

/// A fill of device memory with a 32-bit pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceFill {
    /// Where to; a multiple of 4.
    pub target: CUdeviceptr,
    /// The pattern.
    pub pattern: u32,
    /// How many 32-bit words.
    pub words: usize,
}

impl Graph {
    /// Adds a launch that runs after `after`. The graph keeps the module of the function.
    ///
    /// # Safety
    /// As [`crate::Stream::launch`], for every launch of the graph.
    ///
    /// # Errors
    /// When the arguments do not fit, a node is of another graph, or the driver fails.
    pub unsafe fn add_kernel(&mut self, launch: &KernelLaunch<'_>, after: &[Node]) -> Result<Node> {
        self.context.same(launch.function.context(), "the function")?;
        launch.check()?;
        let mut arguments = launch.arguments.pointers();
        let params = kernel_params(launch, &mut arguments);
        let node = self.add(after, |graph, node, dependencies, count| {
            // SAFETY: the driver copies the arguments, whose number and sizes were checked where
            // the driver tells them; the caller promises the rest.
            unsafe {
                call!(
                    graph.context,
                    cuGraphAddKernelNode_v2(node, graph.raw, dependencies, count, &params)
                )
            }
        })?;
        self.keep(launch.function.owner());
        Ok(node)
    }

    /// Adds a copy that runs after `after`.
    ///
    /// # Safety
    /// Both ranges must be valid and unused by other work, whenever the graph runs, and must not
    /// overlap.
    ///
    /// # Errors
    /// When a node is of another graph, or the driver fails.
    pub unsafe fn add_copy(&mut self, copy: &DeviceCopy, after: &[Node]) -> Result<Node> {
        let params = copy_params(copy);
        self.add(after, |graph, node, dependencies, count| {
            let (raw, context) = (graph.raw, graph.context.raw());
            // SAFETY: the parameters outlive the call; the caller promises the ranges.
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
    /// The range must be valid and unused by other work, whenever the graph runs.
    ///
    /// # Errors
    /// When a node is of another graph, or the driver fails.
    pub unsafe fn add_fill(&mut self, fill: &DeviceFill, after: &[Node]) -> Result<Node> {
        let params = fill_params(fill);
        self.add(after, |graph, node, dependencies, count| {
            let (raw, context) = (graph.raw, graph.context.raw());
            // SAFETY: the parameters outlive the call; the caller promises the range.
            unsafe {
                call!(
                    graph.context,
                    cuGraphAddMemsetNode(node, raw, dependencies, count, &params, context)
                )
            }
        })
    }

    /// Adds a node that does nothing but wait for `after`.
    ///
    /// # Errors
    /// When a node is of another graph, or the driver fails.
    pub fn add_empty(&mut self, after: &[Node]) -> Result<Node> {
        self.add(after, |graph, node, dependencies, count| {
            // SAFETY: the dependencies are nodes of the graph.
            unsafe {
                call!(graph.context, cuGraphAddEmptyNode(node, graph.raw, dependencies, count))
            }
        })
    }

    /// Adds a node that records `event` when `after` have run, and keeps the event. Once a launch
    /// has run, [`Event::elapsed_ms`] tells the time between two such nodes of it.
    ///
    /// # Errors
    /// When the event is of another context, a node of another graph, or the driver fails.
    pub fn add_record(&mut self, event: &Arc<Event>, after: &[Node]) -> Result<Node> {
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

    /// Adds a copy of `child` as one node, and keeps what `child` keeps.
    ///
    /// # Errors
    /// When the graphs are of two contexts, a node is of another graph, or the driver fails.
    pub fn add_child(&mut self, child: &Self, after: &[Node]) -> Result<Node> {
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

    /// Says how urgent the kernel node `node` is: where blocks of several nodes wait for room on
    /// the device, those of the lowest number go first. Nodes have 0 otherwise; the driver replaces
    /// a number that the device does not know by the nearest one that it does. What runs is not
    /// interrupted, and results do not depend on it.
    ///
    /// # Errors
    /// When the node is of another graph or no kernel, or the driver fails.
    pub fn set_priority(&mut self, node: Node, priority: i32) -> Result<()> {
        self.check_nodes(&[node])?;
        self.context.bind()?;
        let attribute = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PRIORITY;
        let value = CUlaunchAttributeValue { priority };
        // SAFETY: the node is of this graph, and the value is that of the attribute.
        unsafe { call!(self.context, cuGraphKernelNodeSetAttribute(node.raw, attribute, &value)) }?;
        self.prioritized = true;
        Ok(())
    }

    /// Makes `later` run after `earlier`.
    ///
    /// # Errors
    /// When a node is of another graph, the edge exists, or the driver fails. An edge that closes a
    /// cycle is found when the graph is instantiated.
    pub fn add_edge(&mut self, earlier: Node, later: Node) -> Result<()> {
        self.check_nodes(&[earlier, later])?;
        self.context.bind()?;
        let (from, to) = (earlier.raw, later.raw);
        // SAFETY: both nodes are of this graph, and the places are valid.
        unsafe { call!(self.context, cuGraphAddDependencies(self.raw, &from, &to, 1)) }
    }

    /// Whether an edge from `earlier` can let a kernel start early: it must be a kernel itself, and
    /// the driver must know edges with data.
    pub(crate) fn can_start_early_behind(&self, earlier: Node) -> Result<bool> {
        let table = self.context.table();
        let known = table.cuGraphAddDependencies_v2.is_some() && table.cuGraphGetEdges_v2.is_some();
        Ok(known && self.kind(earlier)? == NodeKind::Kernel)
    }

    /// Lets the kernel node `later` start when all blocks of the kernel node `earlier` have ended,
    /// or have executed `griddepcontrol.launch_dependents`.
    ///
    /// # Safety
    /// Every thread of `later` executes `griddepcontrol.wait` before it touches global memory, and
    /// before it exits.
    ///
    /// # Errors
    /// When a node is of another graph or no kernel, the edge exists, or the driver fails or has no
    /// edges with data (CUDA 12.3 brought them).
    pub unsafe fn add_early_edge(&mut self, earlier: Node, later: Node) -> Result<()> {
        self.check_nodes(&[earlier, later])?;
        self.context.bind()?;
        let call = "cuGraphAddDependencies_v2";
        let Some(add) = self.context.table().cuGraphAddDependencies_v2 else {
            return Err(Error::NotInDriver { call, operation: "an edge that lets a kernel start" });
        };
        let data = CUgraphEdgeData {
            from_port: CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
            r#type: CUgraphDependencyType::CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC.0 as u8,
            ..CUgraphEdgeData::default()
        };
        let (from, to) = (earlier.raw, later.raw);
        // SAFETY: both nodes are of this graph, and the places are valid; the caller promises that
        // the later kernel waits.
        self.context.check(call, unsafe { add(self.raw, &from, &to, &data, 1) })
    }

    /// What is the same for every kind of node.
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

/// The driver's form of a launch; `arguments` are those of the launch.
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

/// The driver's form of a copy.
pub(super) fn copy_params(copy: &DeviceCopy) -> CUDA_MEMCPY3D {
    CUDA_MEMCPY3D::device_to_device(copy.target, copy.source, copy.bytes)
}

/// The driver's form of a fill.
pub(super) fn fill_params(fill: &DeviceFill) -> CUDA_MEMSET_NODE_PARAMS {
    CUDA_MEMSET_NODE_PARAMS {
        dst: fill.target,
        pitch: 0,
        value: fill.pattern,
        elementSize: 4,
        width: fill.words,
        height: 1,
    }
}
