//! Parameters of a node of any kind.

use std::ffi::c_void;

use super::*;
use crate::handle::CUexternalSemaphore;
use crate::structure::{structures, zeroed};

structures! {
    /// Parameters of a node that signals external semaphores. This crate does not declare the
    /// parameters of one semaphore.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CUDA_EXT_SEM_SIGNAL_NODE_PARAMS_v2 {
        /// The semaphores.
        pub extSemArray: *mut CUexternalSemaphore,
        /// Their parameters.
        pub paramsArray: *const c_void,
        /// Their number.
        pub numExtSems: u32,
    }

    /// Parameters of a node that waits for external semaphores. This crate does not declare the
    /// parameters of one semaphore.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CUDA_EXT_SEM_WAIT_NODE_PARAMS_v2 {
        /// The semaphores.
        pub extSemArray: *mut CUexternalSemaphore,
        /// Their parameters.
        pub paramsArray: *const c_void,
        /// Their number.
        pub numExtSems: u32,
    }

    /// Parameters of a node; its type says of which kind.
    #[derive(Clone, Copy)]
    pub union CUgraphNodeParams_anonymous {
        /// Makes all of them 232 bytes.
        pub reserved1: [i64; 29],
        /// A kernel node.
        pub kernel: CUDA_KERNEL_NODE_PARAMS,
        /// A copy node.
        pub memcpy: CUDA_MEMCPY_NODE_PARAMS,
        /// A fill node.
        pub memset: CUDA_MEMSET_NODE_PARAMS_v2,
        /// A host node.
        pub host: CUDA_HOST_NODE_PARAMS,
        /// A child node.
        pub graph: CUDA_CHILD_GRAPH_NODE_PARAMS,
        /// A node that waits for an event.
        pub eventWait: CUDA_EVENT_WAIT_NODE_PARAMS,
        /// A node that records an event.
        pub eventRecord: CUDA_EVENT_RECORD_NODE_PARAMS,
        /// A node that signals external semaphores.
        pub extSemSignal: CUDA_EXT_SEM_SIGNAL_NODE_PARAMS_v2,
        /// A node that waits for external semaphores.
        pub extSemWait: CUDA_EXT_SEM_WAIT_NODE_PARAMS_v2,
        /// An allocation node.
        pub alloc: CUDA_MEM_ALLOC_NODE_PARAMS,
        /// A free node.
        pub free: CUDA_MEM_FREE_NODE_PARAMS,
        /// A batch node.
        pub memOp: CUDA_BATCH_MEM_OP_NODE_PARAMS,
        /// A conditional node. Since driver 12030.
        pub conditional: CUDA_CONDITIONAL_NODE_PARAMS,
    }

    /// Parameters of a node of any kind, for `cuGraphAddNode_v2`. Bytes that are not parameters
    /// must be zero. Since driver 12020.
    #[derive(Clone, Copy)]
    pub struct CUgraphNodeParams {
        /// The kind of node.
        pub r#type: CUgraphNodeType,
        /// Zeros.
        pub reserved0: [i32; 3],
        /// The parameters.
        pub anonymous: CUgraphNodeParams_anonymous,
        /// 0.
        pub reserved2: i64,
    }
}

zeroed! {
    CUDA_EXT_SEM_SIGNAL_NODE_PARAMS_v2, CUDA_EXT_SEM_WAIT_NODE_PARAMS_v2,
    CUgraphNodeParams_anonymous, CUgraphNodeParams,
}
