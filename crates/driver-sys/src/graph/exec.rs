//! Instantiated graphs: flags, and the results of instantiation and update.

use crate::enumeration::{enumerations, flags};
use crate::handle::{CUgraphNode, CUstream};
use crate::structure::{structures, zeroed};

flags! {
    /// Flags of instantiation.
    CUgraphInstantiate_flags: u64 {
        /// Automatically free unfreed memory of allocation nodes before a relaunch.
        CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH = 1;
        /// Upload at once, on the stream given in the parameters.
        CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD = 2;
        /// Launchable from kernels.
        CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH = 4;
        /// Nodes run with the priority that they were captured with.
        CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY = 8;
    }
}

enumerations! {
    /// The result of `cuGraphExecUpdate_v2`.
    CUgraphExecUpdateResult: u32 {
        /// Success.
        CU_GRAPH_EXEC_UPDATE_SUCCESS = 0;
        /// Another reason, see the result of the call.
        CU_GRAPH_EXEC_UPDATE_ERROR = 1;
        /// Nodes or edges differ.
        CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED = 2;
        /// A node has another kind.
        CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED = 3;
        /// A kernel node has a function that cannot replace the old one.
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

    /// The result of `cuGraphInstantiateWithParams`.
    CUgraphInstantiateResult: u32 {
        /// Success.
        CUDA_GRAPH_INSTANTIATE_SUCCESS = 0;
        /// Another reason, see the result of the call.
        CUDA_GRAPH_INSTANTIATE_ERROR = 1;
        /// The graph has a cycle or another invalid structure.
        CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE = 2;
        /// A node cannot be launched from a kernel.
        CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED = 3;
        /// Nodes belong to several contexts.
        CUDA_GRAPH_INSTANTIATE_MULTIPLE_CTXS_NOT_SUPPORTED = 4;
        /// A conditional handle belongs to no node.
        CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED = 5 since 12080;
    }
}

structures! {
    /// The report of `cuGraphExecUpdate_v2`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CUgraphExecUpdateResultInfo {
        /// Success, or the reason of the failure.
        pub result: CUgraphExecUpdateResult,
        /// The node of the new graph that caused the refusal, or null.
        pub errorNode: CUgraphNode,
        /// The start of the edge that caused the failure, or null.
        pub errorFromNode: CUgraphNode,
    }

    /// In and out parameters of `cuGraphInstantiateWithParams`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CUDA_GRAPH_INSTANTIATE_PARAMS {
        /// Flags `CUDA_GRAPH_INSTANTIATE_FLAG_…`.
        pub flags: u64,
        /// The stream for an upload, when the flags ask for one.
        pub hUploadStream: CUstream,
        /// Out: the node that caused a failure, or null.
        pub hErrNode_out: CUgraphNode,
        /// Out: the result.
        pub result_out: CUgraphInstantiateResult,
    }
}

zeroed! { CUgraphExecUpdateResultInfo, CUDA_GRAPH_INSTANTIATE_PARAMS }
