//! Graphs: creating, cloning, queries, edges, and objects that graphs keep.

/// Passes on the functions of this area; see [`driver_functions!`](crate::driver_functions).
#[doc(hidden)]
#[macro_export]
macro_rules! __graph_functions {
    ($next:ident $($state:tt)*) => {
        $crate::$next! { $($state)*
        required {
            /// Creates an empty graph. `flags` is 0.
            fn cuGraphCreate(graph: *mut $crate::CUgraph, flags: u32);
            /// Destroys a graph and its nodes; instantiated graphs stay.
            fn cuGraphDestroy(graph: $crate::CUgraph);
            /// Copies a graph.
            fn cuGraphClone(clone: *mut $crate::CUgraph, graph: $crate::CUgraph);
            /// Writes the node of a clone that corresponds to a node of the original.
            fn cuGraphNodeFindInClone(
                clone_node: *mut $crate::CUgraphNode, node: $crate::CUgraphNode,
                clone: $crate::CUgraph
            );
            /// Writes the nodes, or only their number when `nodes` is null.
            fn cuGraphGetNodes(
                graph: $crate::CUgraph, nodes: *mut $crate::CUgraphNode, count: *mut usize
            );
            /// Writes the nodes without dependencies, or only their number.
            fn cuGraphGetRootNodes(
                graph: $crate::CUgraph, nodes: *mut $crate::CUgraphNode, count: *mut usize
            );
            /// Writes the edges, or only their number when `from` and `to` are null.
            fn cuGraphGetEdges(
                graph: $crate::CUgraph, from: *mut $crate::CUgraphNode,
                to: *mut $crate::CUgraphNode, count: *mut usize
            );
            /// Adds edges.
            fn cuGraphAddDependencies(
                graph: $crate::CUgraph, from: *const $crate::CUgraphNode,
                to: *const $crate::CUgraphNode, count: usize
            );
            /// Removes edges, which must exist.
            fn cuGraphRemoveDependencies(
                graph: $crate::CUgraph, from: *const $crate::CUgraphNode,
                to: *const $crate::CUgraphNode, count: usize
            );
            /// Writes the graph as a DOT file; flags are `CU_GRAPH_DEBUG_DOT_FLAGS_…`.
            fn cuGraphDebugDotPrint(
                graph: $crate::CUgraph, path: *const $crate::c_char, flags: u32
            );
            /// Creates a reference-counted object. After the last reference is released, a driver
            /// thread calls `destroy` with `pointer`. `flags` is
            /// `CU_USER_OBJECT_NO_DESTRUCTOR_SYNC`.
            fn cuUserObjectCreate(
                object: *mut $crate::CUuserObject, pointer: *mut $crate::c_void,
                destroy: $crate::CUhostFn, initial_count: u32, flags: u32
            );
            /// Adds `count` references.
            fn cuUserObjectRetain(object: $crate::CUuserObject, count: u32);
            /// Releases `count` references.
            fn cuUserObjectRelease(object: $crate::CUuserObject, count: u32);
            /// Lets a graph hold `count` references: new ones, or the caller's with
            /// `CU_GRAPH_USER_OBJECT_MOVE`.
            fn cuGraphRetainUserObject(
                graph: $crate::CUgraph, object: $crate::CUuserObject, count: u32, flags: u32
            );
            /// Releases `count` references of a graph.
            fn cuGraphReleaseUserObject(
                graph: $crate::CUgraph, object: $crate::CUuserObject, count: u32
            );
            /// Writes the bytes that graphs use or reserve on a device, as `u64`.
            fn cuDeviceGetGraphMemAttribute(
                device: $crate::CUdevice, attribute: $crate::CUgraphMem_attribute,
                value: *mut $crate::c_void
            );
            /// Resets a high-water mark of graph memory; the value is a `u64` 0.
            fn cuDeviceSetGraphMemAttribute(
                device: $crate::CUdevice, attribute: $crate::CUgraphMem_attribute,
                value: *mut $crate::c_void
            );
            /// Frees unused memory that is cached for graphs.
            fn cuDeviceGraphMemTrim(device: $crate::CUdevice);
        }
        optional {
            /// Like `cuGraphGetEdges`, with the kind of each edge.
            fn cuGraphGetEdges_v2(
                graph: $crate::CUgraph, from: *mut $crate::CUgraphNode,
                to: *mut $crate::CUgraphNode, edges: *mut $crate::CUgraphEdgeData,
                count: *mut usize
            ) since 12030;
            /// Adds edges with the kind of each; `edges` may be null.
            fn cuGraphAddDependencies_v2(
                graph: $crate::CUgraph, from: *const $crate::CUgraphNode,
                to: *const $crate::CUgraphNode, edges: *const $crate::CUgraphEdgeData, count: usize
            ) since 12030;
            /// Removes edges, which must exist with the same kind.
            fn cuGraphRemoveDependencies_v2(
                graph: $crate::CUgraph, from: *const $crate::CUgraphNode,
                to: *const $crate::CUgraphNode, edges: *const $crate::CUgraphEdgeData, count: usize
            ) since 12030;
        }
        }
    };
}
