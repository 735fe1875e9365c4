//! Every function of the table, once: [`driver_functions!`](crate::driver_functions).

/// Hands the list of all functions to a macro, which makes of it what it needs.
///
/// `driver_functions!(my_macro)` expands to `my_macro! { required { … } optional { … } }`. Each
/// function is written as in cuda.h by its exact exported symbol, with names and types of its
/// arguments; every one returns [`CUresult`](crate::CUresult). Optional functions end in
/// `since N`, the CUDA version of the first driver that exports them.
///
/// The symbols are those that every driver from CUDA 12.0 to 13.0 exports. The headers of CUDA 13
/// rename a few functions by macro (`cuGraphGetEdges` means `cuGraphGetEdges_v2` there); the
/// symbols here keep their meaning in all drivers.
///
/// ```
/// macro_rules! names {
///     (
///         required { $($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),*);)* }
///         optional { $($(#[$o_doc:meta])* fn $o_name:ident($($o_arg:ident: $o_type:ty),*)
///             since $since:literal;)* }
///     ) => {
///         [$(stringify!($name)),*]
///     };
/// }
/// let names = retrograph_driver_sys::driver_functions!(names);
/// assert!(names.contains(&"cuStreamBeginCapture_v2"));
/// ```
#[macro_export]
macro_rules! driver_functions {
    ($callback:ident) => {
        $callback! {
        required {
            // Initialization and errors.
            /// Initializes the driver; first call of a process. `flags` is 0.
            fn cuInit(flags: u32);
            /// Writes the newest CUDA version of the driver, as 1000 × major + 10 × minor.
            fn cuDriverGetVersion(version: *mut i32);
            /// Writes the name of a code; static text.
            fn cuGetErrorName(error: $crate::CUresult, name: *mut *const $crate::c_char);
            /// Writes what a code means; static text.
            fn cuGetErrorString(error: $crate::CUresult, text: *mut *const $crate::c_char);

            // Devices.
            /// Writes the device with this ordinal.
            fn cuDeviceGet(device: *mut $crate::CUdevice, ordinal: i32);
            /// Writes the number of devices.
            fn cuDeviceGetCount(count: *mut i32);
            /// Writes at most `len` bytes of the name, the final zero included.
            fn cuDeviceGetName(name: *mut $crate::c_char, len: i32, device: $crate::CUdevice);
            /// Writes a property of the device.
            fn cuDeviceGetAttribute(
                value: *mut i32, attribute: $crate::CUdevice_attribute, device: $crate::CUdevice
            );
            /// Writes the size of device memory.
            fn cuDeviceTotalMem_v2(bytes: *mut usize, device: $crate::CUdevice);
            /// Writes the identity of the device.
            fn cuDeviceGetUuid_v2(uuid: *mut $crate::CUuuid, device: $crate::CUdevice);
            /// Gives memory kept for graphs back to the device.
            fn cuDeviceGraphMemTrim(device: $crate::CUdevice);

            // Contexts.
            /// Takes a reference to the primary context, making it if needed.
            fn cuDevicePrimaryCtxRetain(context: *mut $crate::CUcontext, device: $crate::CUdevice);
            /// Gives a reference back; the last one destroys the context.
            fn cuDevicePrimaryCtxRelease_v2(device: $crate::CUdevice);
            /// Writes the flags, and whether the primary context exists.
            fn cuDevicePrimaryCtxGetState(
                device: $crate::CUdevice, flags: *mut u32, active: *mut i32
            );
            /// Sets the flags of the primary context.
            fn cuDevicePrimaryCtxSetFlags_v2(device: $crate::CUdevice, flags: u32);
            /// Makes the context current on the calling thread; null for none.
            fn cuCtxSetCurrent(context: $crate::CUcontext);
            /// Writes the context that is current on the calling thread, or null.
            fn cuCtxGetCurrent(context: *mut $crate::CUcontext);
            /// Makes the context current and remembers the one before.
            fn cuCtxPushCurrent_v2(context: $crate::CUcontext);
            /// Undoes a push and writes the context that was current.
            fn cuCtxPopCurrent_v2(context: *mut $crate::CUcontext);
            /// Writes the device of the current context.
            fn cuCtxGetDevice(device: *mut $crate::CUdevice);
            /// Waits for all work of the current context.
            fn cuCtxSynchronize();
            /// Writes a limit of the current context.
            fn cuCtxGetLimit(value: *mut usize, limit: $crate::CUlimit);
            /// Sets a limit of the current context.
            fn cuCtxSetLimit(limit: $crate::CUlimit, value: usize);
            /// Writes the range of stream priorities; lower numbers are more urgent.
            fn cuCtxGetStreamPriorityRange(least: *mut i32, greatest: *mut i32);

            // Memory.
            /// Writes free and total bytes of the device.
            fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
            /// Allocates device memory; its content is undefined.
            fn cuMemAlloc_v2(address: *mut $crate::CUdeviceptr, bytes: usize);
            /// Frees device memory, after waiting for the device.
            fn cuMemFree_v2(address: $crate::CUdeviceptr);
            /// Allocates device memory in stream order.
            fn cuMemAllocAsync(
                address: *mut $crate::CUdeviceptr, bytes: usize, stream: $crate::CUstream
            );
            /// Frees device memory in stream order.
            fn cuMemFreeAsync(address: $crate::CUdeviceptr, stream: $crate::CUstream);
            /// Allocates pinned host memory.
            fn cuMemAllocHost_v2(pointer: *mut *mut $crate::c_void, bytes: usize);
            /// Allocates pinned host memory with flags.
            fn cuMemHostAlloc(pointer: *mut *mut $crate::c_void, bytes: usize, flags: u32);
            /// Frees pinned host memory.
            fn cuMemFreeHost(pointer: *mut $crate::c_void);
            /// Writes a property of an address; the attribute says of which type.
            fn cuPointerGetAttribute(
                data: *mut $crate::c_void, attribute: $crate::CUpointer_attribute,
                address: $crate::CUdeviceptr
            );

            // Copies and fills.
            /// Copies from host to device and waits.
            fn cuMemcpyHtoD_v2(dst: $crate::CUdeviceptr, src: *const $crate::c_void, bytes: usize);
            /// Copies from device to host and waits.
            fn cuMemcpyDtoH_v2(dst: *mut $crate::c_void, src: $crate::CUdeviceptr, bytes: usize);
            /// Copies inside device memory, ordered by the legacy stream.
            fn cuMemcpyDtoD_v2(dst: $crate::CUdeviceptr, src: $crate::CUdeviceptr, bytes: usize);
            /// Copies from host to device in stream order.
            fn cuMemcpyHtoDAsync_v2(
                dst: $crate::CUdeviceptr, src: *const $crate::c_void, bytes: usize,
                stream: $crate::CUstream
            );
            /// Copies from device to host in stream order.
            fn cuMemcpyDtoHAsync_v2(
                dst: *mut $crate::c_void, src: $crate::CUdeviceptr, bytes: usize,
                stream: $crate::CUstream
            );
            /// Copies inside device memory in stream order.
            fn cuMemcpyDtoDAsync_v2(
                dst: $crate::CUdeviceptr, src: $crate::CUdeviceptr, bytes: usize,
                stream: $crate::CUstream
            );
            /// Copies between addresses of any kind in stream order.
            fn cuMemcpyAsync(
                dst: $crate::CUdeviceptr, src: $crate::CUdeviceptr, bytes: usize,
                stream: $crate::CUstream
            );
            /// Fills `count` bytes.
            fn cuMemsetD8_v2(dst: $crate::CUdeviceptr, value: u8, count: usize);
            /// Fills `count` 32-bit words.
            fn cuMemsetD32_v2(dst: $crate::CUdeviceptr, value: u32, count: usize);
            /// Fills `count` bytes in stream order.
            fn cuMemsetD8Async(
                dst: $crate::CUdeviceptr, value: u8, count: usize, stream: $crate::CUstream
            );
            /// Fills `count` 32-bit words in stream order.
            fn cuMemsetD32Async(
                dst: $crate::CUdeviceptr, value: u32, count: usize, stream: $crate::CUstream
            );

            // Streams.
            /// Makes a stream.
            fn cuStreamCreate(stream: *mut $crate::CUstream, flags: u32);
            /// Makes a stream with a priority.
            fn cuStreamCreateWithPriority(stream: *mut $crate::CUstream, flags: u32, priority: i32);
            /// Destroys a stream; its work still completes.
            fn cuStreamDestroy_v2(stream: $crate::CUstream);
            /// Waits for the work of a stream.
            fn cuStreamSynchronize(stream: $crate::CUstream);
            /// Says whether the work of a stream is complete: success or 600.
            fn cuStreamQuery(stream: $crate::CUstream);
            /// Makes later work of the stream wait for an event.
            fn cuStreamWaitEvent(stream: $crate::CUstream, event: $crate::CUevent, flags: u32);
            /// Writes the flags of a stream.
            fn cuStreamGetFlags(stream: $crate::CUstream, flags: *mut u32);
            /// Writes the priority of a stream.
            fn cuStreamGetPriority(stream: $crate::CUstream, priority: *mut i32);

            // Events.
            /// Makes an event.
            fn cuEventCreate(event: *mut $crate::CUevent, flags: u32);
            /// Records the present end of the stream's work.
            fn cuEventRecord(event: $crate::CUevent, stream: $crate::CUstream);
            /// Records with flags.
            fn cuEventRecordWithFlags(event: $crate::CUevent, stream: $crate::CUstream, flags: u32);
            /// Says whether the recorded work is complete: success or 600.
            fn cuEventQuery(event: $crate::CUevent);
            /// Waits for the recorded work.
            fn cuEventSynchronize(event: $crate::CUevent);
            /// Writes the time between two events.
            fn cuEventElapsedTime(
                milliseconds: *mut f32, start: $crate::CUevent, end: $crate::CUevent
            );
            /// Destroys an event.
            fn cuEventDestroy_v2(event: $crate::CUevent);

            // Modules and functions.
            /// Loads an image; PTX ends with a zero byte. The driver is not told how long it is.
            fn cuModuleLoadData(module: *mut $crate::CUmodule, image: *const $crate::c_void);
            /// Loads an image with `count` options.
            fn cuModuleLoadDataEx(
                module: *mut $crate::CUmodule, image: *const $crate::c_void, count: u32,
                options: *mut $crate::CUjit_option, values: *mut *mut $crate::c_void
            );
            /// Unloads a module.
            fn cuModuleUnload(module: $crate::CUmodule);
            /// Writes the function of this name.
            fn cuModuleGetFunction(
                function: *mut $crate::CUfunction, module: $crate::CUmodule,
                name: *const $crate::c_char
            );
            /// Writes address and size of a global variable.
            fn cuModuleGetGlobal_v2(
                address: *mut $crate::CUdeviceptr, bytes: *mut usize, module: $crate::CUmodule,
                name: *const $crate::c_char
            );
            /// Writes a property of a function.
            fn cuFuncGetAttribute(
                value: *mut i32, attribute: $crate::CUfunction_attribute,
                function: $crate::CUfunction
            );
            /// Sets a property of a function.
            fn cuFuncSetAttribute(
                function: $crate::CUfunction, attribute: $crate::CUfunction_attribute, value: i32
            );
            /// Writes the module that holds a function.
            fn cuFuncGetModule(module: *mut $crate::CUmodule, function: $crate::CUfunction);
            /// Writes how many blocks fit on a multiprocessor.
            fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
                blocks: *mut i32, function: $crate::CUfunction, block_size: i32,
                dynamic_shared_bytes: usize
            );
            /// Launches a function; the parameter values are copied during the call.
            fn cuLaunchKernel(
                function: $crate::CUfunction, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32,
                block_y: u32, block_z: u32, shared_bytes: u32, stream: $crate::CUstream,
                parameters: *mut *mut $crate::c_void, extra: *mut *mut $crate::c_void
            );

            // Capture.
            /// Begins to capture a stream.
            fn cuStreamBeginCapture_v2(stream: $crate::CUstream, mode: $crate::CUstreamCaptureMode);
            /// Ends a capture and writes the graph, or null where the capture was invalidated.
            fn cuStreamEndCapture(stream: $crate::CUstream, graph: *mut $crate::CUgraph);
            /// Writes whether the stream is captured.
            fn cuStreamIsCapturing(
                stream: $crate::CUstream, status: *mut $crate::CUstreamCaptureStatus
            );
            /// Writes the state of a capture and what the next node will depend on.
            fn cuStreamGetCaptureInfo_v2(
                stream: $crate::CUstream, status: *mut $crate::CUstreamCaptureStatus, id: *mut u64,
                graph: *mut $crate::CUgraph, dependencies: *mut *const $crate::CUgraphNode,
                count: *mut usize
            );
            /// Exchanges the capture mode of the calling thread.
            fn cuThreadExchangeStreamCaptureMode(mode: *mut $crate::CUstreamCaptureMode);

            // Graphs.
            /// Makes an empty graph. `flags` is 0.
            fn cuGraphCreate(graph: *mut $crate::CUgraph, flags: u32);
            /// Destroys a graph and its nodes; instantiated graphs stay.
            fn cuGraphDestroy(graph: $crate::CUgraph);
            /// Copies a graph.
            fn cuGraphClone(clone: *mut $crate::CUgraph, graph: $crate::CUgraph);
            /// Adds a launch.
            fn cuGraphAddKernelNode_v2(
                node: *mut $crate::CUgraphNode, graph: $crate::CUgraph,
                dependencies: *const $crate::CUgraphNode, count: usize,
                parameters: *const $crate::CUDA_KERNEL_NODE_PARAMS
            );
            /// Adds a copy.
            fn cuGraphAddMemcpyNode(
                node: *mut $crate::CUgraphNode, graph: $crate::CUgraph,
                dependencies: *const $crate::CUgraphNode, count: usize,
                parameters: *const $crate::CUDA_MEMCPY3D, context: $crate::CUcontext
            );
            /// Adds a fill.
            fn cuGraphAddMemsetNode(
                node: *mut $crate::CUgraphNode, graph: $crate::CUgraph,
                dependencies: *const $crate::CUgraphNode, count: usize,
                parameters: *const $crate::CUDA_MEMSET_NODE_PARAMS, context: $crate::CUcontext
            );
            /// Adds a node that only orders others.
            fn cuGraphAddEmptyNode(
                node: *mut $crate::CUgraphNode, graph: $crate::CUgraph,
                dependencies: *const $crate::CUgraphNode, count: usize
            );
            /// Adds a copy of a graph as one node.
            fn cuGraphAddChildGraphNode(
                node: *mut $crate::CUgraphNode, graph: $crate::CUgraph,
                dependencies: *const $crate::CUgraphNode, count: usize, child: $crate::CUgraph
            );
            /// Adds edges.
            fn cuGraphAddDependencies(
                graph: $crate::CUgraph, from: *const $crate::CUgraphNode,
                to: *const $crate::CUgraphNode, count: usize
            );
            /// Removes a node and its edges.
            fn cuGraphDestroyNode(node: $crate::CUgraphNode);
            /// Writes the nodes, or only their number when `nodes` is null.
            fn cuGraphGetNodes(
                graph: $crate::CUgraph, nodes: *mut $crate::CUgraphNode, count: *mut usize
            );
            /// Writes the edges, or only their number when `from` and `to` are null.
            fn cuGraphGetEdges(
                graph: $crate::CUgraph, from: *mut $crate::CUgraphNode,
                to: *mut $crate::CUgraphNode, count: *mut usize
            );
            /// Writes the nodes without dependencies, or only their number.
            fn cuGraphGetRootNodes(
                graph: $crate::CUgraph, nodes: *mut $crate::CUgraphNode, count: *mut usize
            );
            /// Writes the kind of a node.
            fn cuGraphNodeGetType(node: $crate::CUgraphNode, kind: *mut $crate::CUgraphNodeType);
            /// Writes what a node depends on, or only how many.
            fn cuGraphNodeGetDependencies(
                node: $crate::CUgraphNode, dependencies: *mut $crate::CUgraphNode,
                count: *mut usize
            );
            /// Writes the parameters of a kernel node; the pointers inside belong to the node.
            fn cuGraphKernelNodeGetParams_v2(
                node: $crate::CUgraphNode, parameters: *mut $crate::CUDA_KERNEL_NODE_PARAMS
            );
            /// Sets the parameters of a kernel node of a template.
            fn cuGraphKernelNodeSetParams_v2(
                node: $crate::CUgraphNode, parameters: *const $crate::CUDA_KERNEL_NODE_PARAMS
            );
            /// Writes the parameters of a copy node.
            fn cuGraphMemcpyNodeGetParams(
                node: $crate::CUgraphNode, parameters: *mut $crate::CUDA_MEMCPY3D
            );
            /// Writes the parameters of a fill node.
            fn cuGraphMemsetNodeGetParams(
                node: $crate::CUgraphNode, parameters: *mut $crate::CUDA_MEMSET_NODE_PARAMS
            );
            /// Writes the graph inside a node; the node keeps owning it.
            fn cuGraphChildGraphNodeGetGraph(
                node: $crate::CUgraphNode, graph: *mut $crate::CUgraph
            );
            /// Writes the graph as a DOT file.
            fn cuGraphDebugDotPrint(
                graph: $crate::CUgraph, path: *const $crate::c_char, flags: u32
            );

            // Instantiated graphs.
            /// Instantiates a graph.
            fn cuGraphInstantiateWithFlags(
                exec: *mut $crate::CUgraphExec, graph: $crate::CUgraph, flags: u64
            );
            /// Does the one-time work of the first launch ahead of it.
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
            /// Changes an instantiated graph to the parameters of a template of the same shape.
            fn cuGraphExecUpdate_v2(
                exec: $crate::CUgraphExec, graph: $crate::CUgraph,
                info: *mut $crate::CUgraphExecUpdateResultInfo
            );
        }
        optional {
            /// Instantiates a graph and says which node was at fault.
            fn cuGraphInstantiateWithParams(
                exec: *mut $crate::CUgraphExec, graph: $crate::CUgraph,
                parameters: *mut $crate::CUDA_GRAPH_INSTANTIATE_PARAMS
            ) since 12000;
            /// Writes the name of a function; the text belongs to the module.
            fn cuFuncGetName(
                name: *mut *const $crate::c_char, function: $crate::CUfunction
            ) since 12030;
            /// Like `_v2`, with the kind of each dependency.
            fn cuStreamGetCaptureInfo_v3(
                stream: $crate::CUstream, status: *mut $crate::CUstreamCaptureStatus, id: *mut u64,
                graph: *mut $crate::CUgraph, dependencies: *mut *const $crate::CUgraphNode,
                edges: *mut *const $crate::CUgraphEdgeData, count: *mut usize
            ) since 12030;
            /// Writes where a parameter lies in the parameter block, and how large it is.
            fn cuFuncGetParamInfo(
                function: $crate::CUfunction, index: usize, offset: *mut usize, size: *mut usize
            ) since 12040;
        }
        }
    };
}
