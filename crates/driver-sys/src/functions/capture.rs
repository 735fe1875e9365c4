//! Stream capture.

/// Passes on the functions of this area; see [`driver_functions!`](crate::driver_functions).
#[doc(hidden)]
#[macro_export]
macro_rules! __capture_functions {
    ($next:ident $($state:tt)*) => {
        $crate::$next! { $($state)*
        required {
            /// Begins to capture a stream.
            fn cuStreamBeginCapture_v2(stream: $crate::CUstream, mode: $crate::CUstreamCaptureMode);
            /// Ends a capture and writes the graph, or null if the capture was invalidated.
            fn cuStreamEndCapture(stream: $crate::CUstream, graph: *mut $crate::CUgraph);
            /// Writes whether the stream is captured.
            fn cuStreamIsCapturing(
                stream: $crate::CUstream, status: *mut $crate::CUstreamCaptureStatus
            );
            /// Writes the state of a capture and the dependencies of the next node.
            fn cuStreamGetCaptureInfo_v2(
                stream: $crate::CUstream, status: *mut $crate::CUstreamCaptureStatus, id: *mut u64,
                graph: *mut $crate::CUgraph, dependencies: *mut *const $crate::CUgraphNode,
                count: *mut usize
            );
            /// Changes the dependencies of the next captured node; flags are
            /// `CU_STREAM_…_CAPTURE_DEPENDENCIES`. Headers of CUDA 13 no longer declare it.
            fn cuStreamUpdateCaptureDependencies(
                stream: $crate::CUstream, dependencies: *mut $crate::CUgraphNode, count: usize,
                flags: u32
            );
            /// Exchanges the capture mode of the calling thread.
            fn cuThreadExchangeStreamCaptureMode(mode: *mut $crate::CUstreamCaptureMode);
        }
        optional {
            /// Begins to capture a stream into an existing graph, whose nodes in `dependencies` the
            /// first captured node depends on. `edges` may be null.
            fn cuStreamBeginCaptureToGraph(
                stream: $crate::CUstream, graph: $crate::CUgraph,
                dependencies: *const $crate::CUgraphNode, edges: *const $crate::CUgraphEdgeData,
                count: usize, mode: $crate::CUstreamCaptureMode
            ) since 12030;
            /// Like `_v2`, with the kind of each dependency.
            fn cuStreamGetCaptureInfo_v3(
                stream: $crate::CUstream, status: *mut $crate::CUstreamCaptureStatus, id: *mut u64,
                graph: *mut $crate::CUgraph, dependencies: *mut *const $crate::CUgraphNode,
                edges: *mut *const $crate::CUgraphEdgeData, count: *mut usize
            ) since 12030;
            /// Changes the dependencies of the next captured node, with the kind of each;
            /// `edges` may be null.
            fn cuStreamUpdateCaptureDependencies_v2(
                stream: $crate::CUstream, dependencies: *mut $crate::CUgraphNode,
                edges: *const $crate::CUgraphEdgeData, count: usize, flags: u32
            ) since 12030;
        }
        }
    };
}
