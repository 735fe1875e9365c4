//! Graphs: node parameters, instantiation and updates.

use std::ffi::c_void;

use crate::enumeration::enumerations;
use crate::handle::{CUcontext, CUfunction, CUgraphNode, CUkernel, CUstream};
use crate::memory::CUdeviceptr;

/// Flag of instantiation: free memory of allocation nodes before a launch that finds it unfreed.
pub const CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH: u64 = 1;
/// Flag of instantiation: upload at once, on the stream given in the parameters.
pub const CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD: u64 = 2;
/// Flag of instantiation: launchable from kernels.
pub const CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH: u64 = 4;
/// Flag of instantiation: nodes run with the priority that they were captured with.
pub const CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY: u64 = 8;

/// Flag of `cuGraphDebugDotPrint`: everything.
pub const CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE: u32 = 1;
/// Flag of `cuGraphDebugDotPrint`: parameters of kernel nodes.
pub const CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_PARAMS: u32 = 4;
/// Flag of `cuGraphDebugDotPrint`: parameters of copy nodes.
pub const CU_GRAPH_DEBUG_DOT_FLAGS_MEMCPY_NODE_PARAMS: u32 = 8;
/// Flag of `cuGraphDebugDotPrint`: parameters of fill nodes.
pub const CU_GRAPH_DEBUG_DOT_FLAGS_MEMSET_NODE_PARAMS: u32 = 16;

enumerations! {
    /// The kind of a node.
    CUgraphNodeType: u32 {
        /// A launch.
        CU_GRAPH_NODE_TYPE_KERNEL = 0;
        /// A copy.
        CU_GRAPH_NODE_TYPE_MEMCPY = 1;
        /// A fill.
        CU_GRAPH_NODE_TYPE_MEMSET = 2;
        /// A host function.
        CU_GRAPH_NODE_TYPE_HOST = 3;
        /// A graph inside the graph.
        CU_GRAPH_NODE_TYPE_GRAPH = 4;
        /// Nothing but dependencies.
        CU_GRAPH_NODE_TYPE_EMPTY = 5;
        /// A wait for an event outside the graph.
        CU_GRAPH_NODE_TYPE_WAIT_EVENT = 6;
        /// An event recorded for the outside.
        CU_GRAPH_NODE_TYPE_EVENT_RECORD = 7;
        /// A signal to an external semaphore.
        CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL = 8;
        /// A wait for an external semaphore.
        CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT = 9;
        /// An allocation.
        CU_GRAPH_NODE_TYPE_MEM_ALLOC = 10;
        /// A free.
        CU_GRAPH_NODE_TYPE_MEM_FREE = 11;
        /// A batch of waits and writes.
        CU_GRAPH_NODE_TYPE_BATCH_MEM_OP = 12;
        /// A conditional body.
        CU_GRAPH_NODE_TYPE_CONDITIONAL = 13;
    }

    /// Why `cuGraphExecUpdate_v2` refused.
    CUgraphExecUpdateResult: u32 {
        /// It did not refuse.
        CU_GRAPH_EXEC_UPDATE_SUCCESS = 0;
        /// A reason that the call's result says.
        CU_GRAPH_EXEC_UPDATE_ERROR = 1;
        /// Nodes or edges differ.
        CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED = 2;
        /// A node has another kind.
        CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED = 3;
        /// A kernel node has a function that cannot take the place of the old one.
        CU_GRAPH_EXEC_UPDATE_ERROR_FUNCTION_CHANGED = 4;
        /// Parameters changed in a way that is not supported.
        CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED = 5;
        /// Something about a node cannot be updated.
        CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED = 6;
        /// The function changed in a way that is not supported.
        CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE = 7;
        /// Attributes changed in a way that is not supported.
        CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED = 8;
    }

    /// How `cuGraphInstantiateWithParams` went.
    CUgraphInstantiateResult: u32 {
        /// Well.
        CUDA_GRAPH_INSTANTIATE_SUCCESS = 0;
        /// A reason that the call's result says.
        CUDA_GRAPH_INSTANTIATE_ERROR = 1;
        /// The graph has a cycle or another invalid structure.
        CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE = 2;
        /// A node cannot be launched from a kernel.
        CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED = 3;
        /// Nodes belong to several contexts.
        CUDA_GRAPH_INSTANTIATE_MULTIPLE_CTXS_NOT_SUPPORTED = 4;
    }
}

/// Parameters of a kernel node, in the 72-byte layout of driver 12.0 and later.
///
/// `kernelParams` points to one pointer per parameter. The driver copies the values that they
/// point to; nothing has to live longer than the call.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CUDA_KERNEL_NODE_PARAMS {
    /// The function.
    pub func: CUfunction,
    /// Blocks along x.
    pub gridDimX: u32,
    /// Blocks along y.
    pub gridDimY: u32,
    /// Blocks along z.
    pub gridDimZ: u32,
    /// Threads of a block along x.
    pub blockDimX: u32,
    /// Threads of a block along y.
    pub blockDimY: u32,
    /// Threads of a block along z.
    pub blockDimZ: u32,
    /// Dynamic shared memory in bytes.
    pub sharedMemBytes: u32,
    /// One pointer per parameter.
    pub kernelParams: *mut *mut c_void,
    /// The other way to pass parameters, as one buffer; null when `kernelParams` is used.
    pub extra: *mut *mut c_void,
    /// A kernel of a library, when `func` is null.
    pub kern: CUkernel,
    /// The context for `kern`, or null for the current one.
    pub ctx: CUcontext,
}

impl Default for CUDA_KERNEL_NODE_PARAMS {
    fn default() -> Self {
        Self {
            func: CUfunction::NULL,
            gridDimX: 1,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: 1,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: 0,
            kernelParams: std::ptr::null_mut(),
            extra: std::ptr::null_mut(),
            kern: CUkernel::NULL,
            ctx: CUcontext::NULL,
        }
    }
}

/// Parameters of a fill node: `height` rows of `width` elements.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CUDA_MEMSET_NODE_PARAMS {
    /// The first address.
    pub dst: CUdeviceptr,
    /// Bytes from one row to the next; unused with one row.
    pub pitch: usize,
    /// What to write; the low bytes for smaller elements.
    pub value: u32,
    /// 1, 2 or 4 bytes.
    pub elementSize: u32,
    /// Elements in a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
}

/// What `cuGraphExecUpdate_v2` reports.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CUgraphExecUpdateResultInfo {
    /// Success, or why not.
    pub result: CUgraphExecUpdateResult,
    /// The node of the new graph that caused the refusal, or null.
    pub errorNode: CUgraphNode,
    /// Where the offending edge starts, or null.
    pub errorFromNode: CUgraphNode,
}

impl Default for CUgraphExecUpdateResultInfo {
    fn default() -> Self {
        Self {
            result: CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_SUCCESS,
            errorNode: CUgraphNode::NULL,
            errorFromNode: CUgraphNode::NULL,
        }
    }
}

/// In and out parameters of `cuGraphInstantiateWithParams`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CUDA_GRAPH_INSTANTIATE_PARAMS {
    /// Flags `CUDA_GRAPH_INSTANTIATE_FLAG_…`.
    pub flags: u64,
    /// The stream for an upload, when the flags ask for one.
    pub hUploadStream: CUstream,
    /// Out: the node that caused a failure, or null.
    pub hErrNode_out: CUgraphNode,
    /// Out: how it went.
    pub result_out: CUgraphInstantiateResult,
}

/// What kind of dependency an edge is; all zeros for a full one.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CUgraphEdgeData {
    /// When the upstream node lets go: 0 is at its end.
    pub from_port: u8,
    /// What waits in the downstream node: 0 is all of it.
    pub to_port: u8,
    /// The type of the edge: 0 is a full dependency.
    pub r#type: u8,
    /// Zeros.
    pub reserved: [u8; 5],
}
