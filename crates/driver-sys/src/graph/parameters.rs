//! Parameters of nodes, one struct for each kind.

use std::ffi::c_void;

use super::CUgraphConditionalHandle;
use crate::copy::CUDA_MEMCPY3D;
use crate::enumeration::enumerations;
use crate::handle::{CUcontext, CUevent, CUfunction, CUgraph, CUkernel};
use crate::launch::{CUlaunchAttributeID, CUlaunchAttributeValue};
use crate::location::CUmemAccessDesc;
use crate::memory::CUdeviceptr;
use crate::memory_operation::CUstreamBatchMemOpParams;
use crate::pool::CUmemPoolProps;
use crate::stream::CUhostFn;
use crate::structure::{structures, zeroed};

/// The name of an attribute of a kernel node: most of the attributes of launches apply.
pub type CUkernelNodeAttrID = CUlaunchAttributeID;
/// The value of an attribute of a kernel node.
pub type CUkernelNodeAttrValue = CUlaunchAttributeValue;

enumerations! {
    /// The ownership of a child graph.
    CUgraphChildGraphNodeOwnership: u32 {
        /// The node copies it.
        CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE = 0 since 12090;
        /// The node takes it over.
        CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE = 1 since 12090;
    }

    /// The kind of a conditional node.
    CUgraphConditionalNodeType: u32 {
        /// The body runs once if the value is not 0; a second body otherwise.
        CU_GRAPH_COND_TYPE_IF = 0 since 12030;
        /// The body runs while the value is not 0.
        CU_GRAPH_COND_TYPE_WHILE = 1 since 12030;
        /// The body whose index is the value runs, or none.
        CU_GRAPH_COND_TYPE_SWITCH = 2 since 12080;
    }
}

structures! {
    /// Parameters of a kernel node, in the 72-byte layout of driver 12.0 and later.
    ///
    /// `kernelParams` points to one pointer per parameter. The driver copies the values that they
    /// point to during the call.
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
        /// Alternatively, all parameters in one buffer; null if `kernelParams` is used.
        pub extra: *mut *mut c_void,
        /// A kernel of a library, when `func` is null.
        pub kern: CUkernel,
        /// The context for `kern`, or null for the current one.
        pub ctx: CUcontext,
    }

    /// Parameters of a copy node, in the form of `cuGraphAddNode_v2`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CUDA_MEMCPY_NODE_PARAMS {
        /// 0.
        pub flags: i32,
        /// 0.
        pub reserved: i32,
        /// The context of the copy.
        pub copyCtx: CUcontext,
        /// The copy.
        pub copyParams: CUDA_MEMCPY3D,
    }

    /// Parameters of a fill node: `height` rows of `width` elements.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CUDA_MEMSET_NODE_PARAMS {
        /// The first address.
        pub dst: CUdeviceptr,
        /// Bytes from one row to the next; unused with one row.
        pub pitch: usize,
        /// The value; the low bytes for smaller elements.
        pub value: u32,
        /// 1, 2 or 4 bytes.
        pub elementSize: u32,
        /// Elements in a row.
        pub width: usize,
        /// Rows.
        pub height: usize,
    }

    /// Parameters of a fill node, in the form of `cuGraphAddNode_v2`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CUDA_MEMSET_NODE_PARAMS_v2 {
        /// The first address.
        pub dst: CUdeviceptr,
        /// Bytes from one row to the next; unused with one row.
        pub pitch: usize,
        /// The value; the low bytes for smaller elements.
        pub value: u32,
        /// 1, 2 or 4 bytes.
        pub elementSize: u32,
        /// Elements in a row.
        pub width: usize,
        /// Rows.
        pub height: usize,
        /// The context of the fill.
        pub ctx: CUcontext,
    }

    /// Parameters of a host node.
    #[derive(Clone, Copy, Debug)]
    pub struct CUDA_HOST_NODE_PARAMS {
        /// The function.
        pub r#fn: CUhostFn,
        /// The argument.
        pub userData: *mut c_void,
    }

    /// Parameters of a child node, in the form of `cuGraphAddNode_v2`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CUDA_CHILD_GRAPH_NODE_PARAMS {
        /// The graph; out: the one inside the node.
        pub graph: CUgraph,
        /// Its ownership. Since driver 12090; 0 before.
        pub ownership: CUgraphChildGraphNodeOwnership,
    }

    /// Parameters of a node that records an event, in the form of `cuGraphAddNode_v2`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CUDA_EVENT_RECORD_NODE_PARAMS {
        /// The event.
        pub event: CUevent,
    }

    /// Parameters of a node that waits for an event, in the form of `cuGraphAddNode_v2`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CUDA_EVENT_WAIT_NODE_PARAMS {
        /// The event.
        pub event: CUevent,
    }

    /// Parameters of an allocation node.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CUDA_MEM_ALLOC_NODE_PARAMS {
        /// The kind and location of the memory; no handles, no export.
        pub poolProps: CUmemPoolProps,
        /// Devices that may access it besides its own.
        pub accessDescs: *const CUmemAccessDesc,
        /// Their number.
        pub accessDescCount: usize,
        /// Bytes.
        pub bytesize: usize,
        /// Out: the address.
        pub dptr: CUdeviceptr,
    }

    /// Parameters of a free node, in the form of `cuGraphAddNode_v2`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CUDA_MEM_FREE_NODE_PARAMS {
        /// The address.
        pub dptr: CUdeviceptr,
    }

    /// Parameters of a batch node.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CUDA_BATCH_MEM_OP_NODE_PARAMS {
        /// The context.
        pub ctx: CUcontext,
        /// How many operations.
        pub count: u32,
        /// The operations.
        pub paramArray: *mut CUstreamBatchMemOpParams,
        /// 0.
        pub flags: u32,
    }

    /// Parameters of a conditional node. Since driver 12030.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CUDA_CONDITIONAL_NODE_PARAMS {
        /// The condition handle, created for the same graph.
        pub handle: CUgraphConditionalHandle,
        /// The kind.
        pub r#type: CUgraphConditionalNodeType,
        /// How many bodies: 1 for a loop, 1 or 2 for `IF`, any for `SWITCH`.
        pub size: u32,
        /// Out: the bodies, which belong to the node.
        pub phGraph_out: *mut CUgraph,
        /// The context.
        pub ctx: CUcontext,
    }
}

zeroed! {
    CUDA_MEMCPY_NODE_PARAMS, CUDA_HOST_NODE_PARAMS, CUDA_CHILD_GRAPH_NODE_PARAMS,
    CUDA_MEM_ALLOC_NODE_PARAMS, CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_CONDITIONAL_NODE_PARAMS,
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
