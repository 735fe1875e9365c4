//! Nodes of graph templates: adding them, and their parameters.

/// Passes on the functions of this area; see [`driver_functions!`](crate::driver_functions).
#[doc(hidden)]
#[macro_export]
macro_rules! __node_functions {
    ($next:ident $($state:tt)*) => {
        $crate::$next! { $($state)*
        required {
            /// Adds a launch.
            fn cuGraphAddKernelNode_v2(
                node: *mut $crate::CUgraphNode, graph: $crate::CUgraph,
                dependencies: *const $crate::CUgraphNode, count: usize,
                parameters: *const $crate::CUDA_KERNEL_NODE_PARAMS
            );
            /// Writes the parameters of a kernel node; the pointers inside belong to the node.
            fn cuGraphKernelNodeGetParams_v2(
                node: $crate::CUgraphNode, parameters: *mut $crate::CUDA_KERNEL_NODE_PARAMS
            );
            /// Sets the parameters of a kernel node of a template.
            fn cuGraphKernelNodeSetParams_v2(
                node: $crate::CUgraphNode, parameters: *const $crate::CUDA_KERNEL_NODE_PARAMS
            );
            /// Writes an attribute of a kernel node.
            fn cuGraphKernelNodeGetAttribute(
                node: $crate::CUgraphNode, attribute: $crate::CUkernelNodeAttrID,
                value: *mut $crate::CUkernelNodeAttrValue
            );
            /// Sets an attribute of a kernel node.
            fn cuGraphKernelNodeSetAttribute(
                node: $crate::CUgraphNode, attribute: $crate::CUkernelNodeAttrID,
                value: *const $crate::CUkernelNodeAttrValue
            );
            /// Copies all attributes from `source` to `target`, both kernel nodes.
            fn cuGraphKernelNodeCopyAttributes(
                target: $crate::CUgraphNode, source: $crate::CUgraphNode
            );
            /// Adds a copy.
            fn cuGraphAddMemcpyNode(
                node: *mut $crate::CUgraphNode, graph: $crate::CUgraph,
                dependencies: *const $crate::CUgraphNode, count: usize,
                parameters: *const $crate::CUDA_MEMCPY3D, context: $crate::CUcontext
            );
            /// Writes the parameters of a copy node.
            fn cuGraphMemcpyNodeGetParams(
                node: $crate::CUgraphNode, parameters: *mut $crate::CUDA_MEMCPY3D
            );
            /// Sets the parameters of a copy node of a template.
            fn cuGraphMemcpyNodeSetParams(
                node: $crate::CUgraphNode, parameters: *const $crate::CUDA_MEMCPY3D
            );
            /// Adds a fill.
            fn cuGraphAddMemsetNode(
                node: *mut $crate::CUgraphNode, graph: $crate::CUgraph,
                dependencies: *const $crate::CUgraphNode, count: usize,
                parameters: *const $crate::CUDA_MEMSET_NODE_PARAMS, context: $crate::CUcontext
            );
            /// Writes the parameters of a fill node.
            fn cuGraphMemsetNodeGetParams(
                node: $crate::CUgraphNode, parameters: *mut $crate::CUDA_MEMSET_NODE_PARAMS
            );
            /// Sets the parameters of a fill node of a template.
            fn cuGraphMemsetNodeSetParams(
                node: $crate::CUgraphNode, parameters: *const $crate::CUDA_MEMSET_NODE_PARAMS
            );
            /// Adds a call of a host function.
            fn cuGraphAddHostNode(
                node: *mut $crate::CUgraphNode, graph: $crate::CUgraph,
                dependencies: *const $crate::CUgraphNode, count: usize,
                parameters: *const $crate::CUDA_HOST_NODE_PARAMS
            );
            /// Writes the parameters of a host node.
            fn cuGraphHostNodeGetParams(
                node: $crate::CUgraphNode, parameters: *mut $crate::CUDA_HOST_NODE_PARAMS
            );
            /// Sets the parameters of a host node of a template.
            fn cuGraphHostNodeSetParams(
                node: $crate::CUgraphNode, parameters: *const $crate::CUDA_HOST_NODE_PARAMS
            );
            /// Adds a copy of a graph as one node.
            fn cuGraphAddChildGraphNode(
                node: *mut $crate::CUgraphNode, graph: $crate::CUgraph,
                dependencies: *const $crate::CUgraphNode, count: usize, child: $crate::CUgraph
            );
            /// Writes the graph inside a node; the node keeps owning it.
            fn cuGraphChildGraphNodeGetGraph(
                node: $crate::CUgraphNode, graph: *mut $crate::CUgraph
            );
            /// Adds a node that only orders others.
            fn cuGraphAddEmptyNode(
                node: *mut $crate::CUgraphNode, graph: $crate::CUgraph,
                dependencies: *const $crate::CUgraphNode, count: usize
            );
            /// Adds an event record, for waits outside of the graph.
            fn cuGraphAddEventRecordNode(
                node: *mut $crate::CUgraphNode, graph: $crate::CUgraph,
                dependencies: *const $crate::CUgraphNode, count: usize, event: $crate::CUevent
            );
            /// Writes the event of a record node.
            fn cuGraphEventRecordNodeGetEvent(
                node: $crate::CUgraphNode, event: *mut $crate::CUevent
            );
            /// Sets the event of a record node of a template.
            fn cuGraphEventRecordNodeSetEvent(node: $crate::CUgraphNode, event: $crate::CUevent);
            /// Adds a wait for an event that is recorded outside the graph.
            fn cuGraphAddEventWaitNode(
                node: *mut $crate::CUgraphNode, graph: $crate::CUgraph,
                dependencies: *const $crate::CUgraphNode, count: usize, event: $crate::CUevent
            );
            /// Writes the event of a wait node.
            fn cuGraphEventWaitNodeGetEvent(node: $crate::CUgraphNode, event: *mut $crate::CUevent);
            /// Sets the event of a wait node of a template.
            fn cuGraphEventWaitNodeSetEvent(node: $crate::CUgraphNode, event: $crate::CUevent);
            /// Adds an allocation and writes its address into the parameters; the address is the
            /// same at each launch.
            fn cuGraphAddMemAllocNode(
                node: *mut $crate::CUgraphNode, graph: $crate::CUgraph,
                dependencies: *const $crate::CUgraphNode, count: usize,
                parameters: *mut $crate::CUDA_MEM_ALLOC_NODE_PARAMS
            );
            /// Writes the parameters of an allocation node; the pointers inside belong to the node.
            fn cuGraphMemAllocNodeGetParams(
                node: $crate::CUgraphNode, parameters: *mut $crate::CUDA_MEM_ALLOC_NODE_PARAMS
            );
            /// Adds a free of memory that a graph allocated.
            fn cuGraphAddMemFreeNode(
                node: *mut $crate::CUgraphNode, graph: $crate::CUgraph,
                dependencies: *const $crate::CUgraphNode, count: usize,
                address: $crate::CUdeviceptr
            );
            /// Writes the address that a free node frees.
            fn cuGraphMemFreeNodeGetParams(
                node: $crate::CUgraphNode, address: *mut $crate::CUdeviceptr
            );
            /// Adds a batch of waits and writes.
            fn cuGraphAddBatchMemOpNode(
                node: *mut $crate::CUgraphNode, graph: $crate::CUgraph,
                dependencies: *const $crate::CUgraphNode, count: usize,
                parameters: *const $crate::CUDA_BATCH_MEM_OP_NODE_PARAMS
            );
            /// Writes the parameters of a batch node; the pointer inside belongs to the node.
            fn cuGraphBatchMemOpNodeGetParams(
                node: $crate::CUgraphNode, parameters: *mut $crate::CUDA_BATCH_MEM_OP_NODE_PARAMS
            );
            /// Sets the parameters of a batch node of a template.
            fn cuGraphBatchMemOpNodeSetParams(
                node: $crate::CUgraphNode, parameters: *const $crate::CUDA_BATCH_MEM_OP_NODE_PARAMS
            );
            /// Writes the kind of a node.
            fn cuGraphNodeGetType(node: $crate::CUgraphNode, kind: *mut $crate::CUgraphNodeType);
            /// Writes the dependencies of a node, or their number.
            fn cuGraphNodeGetDependencies(
                node: $crate::CUgraphNode, dependencies: *mut $crate::CUgraphNode,
                count: *mut usize
            );
            /// Writes the dependents of a node, or their number.
            fn cuGraphNodeGetDependentNodes(
                node: $crate::CUgraphNode, dependents: *mut $crate::CUgraphNode, count: *mut usize
            );
            /// Removes a node and its edges.
            fn cuGraphDestroyNode(node: $crate::CUgraphNode);
        }
        optional {
            /// Adds a node of the kind in the parameters. Only headers of CUDA 12 declare it; `_v2`
            /// supports edge data.
            fn cuGraphAddNode(
                node: *mut $crate::CUgraphNode, graph: $crate::CUgraph,
                dependencies: *const $crate::CUgraphNode, count: usize,
                parameters: *mut $crate::CUgraphNodeParams
            ) since 12020;
            /// Adds a node of the kind in the parameters, with the kind of each dependency; `edges`
            /// may be null.
            fn cuGraphAddNode_v2(
                node: *mut $crate::CUgraphNode, graph: $crate::CUgraph,
                dependencies: *const $crate::CUgraphNode, edges: *const $crate::CUgraphEdgeData,
                count: usize, parameters: *mut $crate::CUgraphNodeParams
            ) since 12030;
            /// Sets the parameters of a node of a template.
            fn cuGraphNodeSetParams(
                node: $crate::CUgraphNode, parameters: *mut $crate::CUgraphNodeParams
            ) since 12020;
            /// Creates the handle through which kernels set the value of a conditional node. With
            /// `CU_GRAPH_COND_ASSIGN_DEFAULT` in `flags`, each launch begins with `default_value`.
            fn cuGraphConditionalHandleCreate(
                handle: *mut $crate::CUgraphConditionalHandle, graph: $crate::CUgraph,
                context: $crate::CUcontext, default_value: u32, flags: u32
            ) since 12030;
            /// Like `cuGraphNodeGetDependencies`, with the kind of each; `edges` may be null.
            fn cuGraphNodeGetDependencies_v2(
                node: $crate::CUgraphNode, dependencies: *mut $crate::CUgraphNode,
                edges: *mut $crate::CUgraphEdgeData, count: *mut usize
            ) since 12030;
            /// Like `cuGraphNodeGetDependentNodes`, with the kind of each; `edges` may be null.
            fn cuGraphNodeGetDependentNodes_v2(
                node: $crate::CUgraphNode, dependents: *mut $crate::CUgraphNode,
                edges: *mut $crate::CUgraphEdgeData, count: *mut usize
            ) since 12030;
        }
        }
    };
}
