//! Instantiated graphs: launching and changing them.

/// Passes on the functions of this area; see [`driver_functions!`](crate::driver_functions).
#[doc(hidden)]
#[macro_export]
macro_rules! __exec_functions {
    ($next:ident $($state:tt)*) => {
        $crate::$next! { $($state)*
        required {
            /// Instantiates a graph; flags are `CUDA_GRAPH_INSTANTIATE_FLAG_…`.
            fn cuGraphInstantiateWithFlags(
                exec: *mut $crate::CUgraphExec, graph: $crate::CUgraph, flags: u64
            );
            /// Instantiates a graph and reports the node that caused a failure.
            fn cuGraphInstantiateWithParams(
                exec: *mut $crate::CUgraphExec, graph: $crate::CUgraph,
                parameters: *mut $crate::CUDA_GRAPH_INSTANTIATE_PARAMS
            );
            /// Writes the flags that a graph was instantiated with.
            fn cuGraphExecGetFlags(exec: $crate::CUgraphExec, flags: *mut u64);
            /// Uploads the exec, which the first launch would otherwise do.
            fn cuGraphUpload(exec: $crate::CUgraphExec, stream: $crate::CUstream);
            /// Launches an instantiated graph in stream order.
            fn cuGraphLaunch(exec: $crate::CUgraphExec, stream: $crate::CUstream);
            /// Destroys an instantiated graph.
            fn cuGraphExecDestroy(exec: $crate::CUgraphExec);
            /// Sets the parameters of a kernel node of an instantiated graph.
            fn cuGraphExecKernelNodeSetParams_v2(
                exec: $crate::CUgraphExec, node: $crate::CUgraphNode,
                parameters: *const $crate::CUDA_KERNEL_NODE_PARAMS
            );
            /// Sets the parameters of a copy node of an instantiated graph.
            fn cuGraphExecMemcpyNodeSetParams(
                exec: $crate::CUgraphExec, node: $crate::CUgraphNode,
                parameters: *const $crate::CUDA_MEMCPY3D, context: $crate::CUcontext
            );
            /// Sets the parameters of a fill node of an instantiated graph.
            fn cuGraphExecMemsetNodeSetParams(
                exec: $crate::CUgraphExec, node: $crate::CUgraphNode,
                parameters: *const $crate::CUDA_MEMSET_NODE_PARAMS, context: $crate::CUcontext
            );
            /// Sets the parameters of a host node of an instantiated graph.
            fn cuGraphExecHostNodeSetParams(
                exec: $crate::CUgraphExec, node: $crate::CUgraphNode,
                parameters: *const $crate::CUDA_HOST_NODE_PARAMS
            );
            /// Sets the parameters of the nodes inside a child node from a graph of the same shape.
            fn cuGraphExecChildGraphNodeSetParams(
                exec: $crate::CUgraphExec, node: $crate::CUgraphNode, child: $crate::CUgraph
            );
            /// Sets the event of a record node of an instantiated graph.
            fn cuGraphExecEventRecordNodeSetEvent(
                exec: $crate::CUgraphExec, node: $crate::CUgraphNode, event: $crate::CUevent
            );
            /// Sets the event of a wait node of an instantiated graph.
            fn cuGraphExecEventWaitNodeSetEvent(
                exec: $crate::CUgraphExec, node: $crate::CUgraphNode, event: $crate::CUevent
            );
            /// Sets the parameters of a batch node of an instantiated graph.
            fn cuGraphExecBatchMemOpNodeSetParams(
                exec: $crate::CUgraphExec, node: $crate::CUgraphNode,
                parameters: *const $crate::CUDA_BATCH_MEM_OP_NODE_PARAMS
            );
            /// Makes a kernel, copy or fill node of an instantiated graph run (1) or only order
            /// others (0).
            fn cuGraphNodeSetEnabled(
                exec: $crate::CUgraphExec, node: $crate::CUgraphNode, enabled: u32
            );
            /// Writes whether a node of an instantiated graph runs.
            fn cuGraphNodeGetEnabled(
                exec: $crate::CUgraphExec, node: $crate::CUgraphNode, enabled: *mut u32
            );
            /// Changes an instantiated graph to the parameters of a template of the same shape.
            fn cuGraphExecUpdate_v2(
                exec: $crate::CUgraphExec, graph: $crate::CUgraph,
                info: *mut $crate::CUgraphExecUpdateResultInfo
            );
        }
        optional {
            /// Sets the parameters of a node of an instantiated graph.
            fn cuGraphExecNodeSetParams(
                exec: $crate::CUgraphExec, node: $crate::CUgraphNode,
                parameters: *mut $crate::CUgraphNodeParams
            ) since 12020;
        }
        }
    };
}
