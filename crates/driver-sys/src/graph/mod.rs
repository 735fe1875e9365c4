//! Graphs: kinds of nodes and edges, flags, and memory of graphs.

mod exec;
mod parameters;
mod union;

use crate::enumeration::{enumerations, flags};
use crate::structure::structures;

pub use exec::*;
pub use parameters::*;
pub use union::*;

/// The lists of the graph modules for [`crate::constants`] and [`crate::layouts`].
pub(crate) mod lists {
    pub(crate) use super::exec::{
        ENUMERATIONS as EXEC, FLAGS as EXEC_FLAGS, LAYOUTS as EXEC_LAYOUTS,
    };
    pub(crate) use super::parameters::{ENUMERATIONS as PARAMETERS, LAYOUTS as PARAMETER_LAYOUTS};
    pub(crate) use super::union::LAYOUTS as UNIONS;
}

/// A handle through which kernels set the value of a conditional node: a number, not a pointer.
/// Since driver 12030.
pub type CUgraphConditionalHandle = u64;

flags! {
    /// Flags of `cuGraphConditionalHandleCreate`.
    CUgraphConditionalHandle_flags: u32 {
        /// Each launch begins with the default value.
        CU_GRAPH_COND_ASSIGN_DEFAULT = 1 since 12030;
    }

    /// Outgoing ports of a kernel node.
    CUgraphKernelNode_port: u8 {
        /// At the end of the kernel.
        CU_GRAPH_KERNEL_NODE_PORT_DEFAULT = 0 since 12030;
        /// When the kernel's blocks trigger it.
        CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC = 1 since 12030;
        /// When all blocks have started.
        CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER = 2 since 12030;
    }

    /// Flags of `cuGraphDebugDotPrint`.
    CUgraphDebugDot_flags: u32 {
        /// Everything.
        CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE = 1;
        /// Types of the runtime API instead of the driver's.
        CU_GRAPH_DEBUG_DOT_FLAGS_RUNTIME_TYPES = 2;
        /// Parameters of kernel nodes.
        CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_PARAMS = 4;
        /// Parameters of copy nodes.
        CU_GRAPH_DEBUG_DOT_FLAGS_MEMCPY_NODE_PARAMS = 8;
        /// Parameters of fill nodes.
        CU_GRAPH_DEBUG_DOT_FLAGS_MEMSET_NODE_PARAMS = 16;
        /// Parameters of host nodes.
        CU_GRAPH_DEBUG_DOT_FLAGS_HOST_NODE_PARAMS = 32;
        /// Events of event nodes.
        CU_GRAPH_DEBUG_DOT_FLAGS_EVENT_NODE_PARAMS = 64;
        /// Parameters of nodes that signal external semaphores.
        CU_GRAPH_DEBUG_DOT_FLAGS_EXT_SEMAS_SIGNAL_NODE_PARAMS = 128;
        /// Parameters of nodes that wait for external semaphores.
        CU_GRAPH_DEBUG_DOT_FLAGS_EXT_SEMAS_WAIT_NODE_PARAMS = 256;
        /// Attributes of kernel nodes.
        CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_ATTRIBUTES = 512;
        /// Handles of nodes and functions.
        CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES = 1024;
        /// Parameters of allocation nodes.
        CU_GRAPH_DEBUG_DOT_FLAGS_MEM_ALLOC_NODE_PARAMS = 2048;
        /// Parameters of free nodes.
        CU_GRAPH_DEBUG_DOT_FLAGS_MEM_FREE_NODE_PARAMS = 4096;
        /// Parameters of batch nodes.
        CU_GRAPH_DEBUG_DOT_FLAGS_BATCH_MEM_OP_NODE_PARAMS = 8192;
        /// More about edges.
        CU_GRAPH_DEBUG_DOT_FLAGS_EXTRA_TOPO_INFO = 16384;
        /// Parameters of conditional nodes.
        CU_GRAPH_DEBUG_DOT_FLAGS_CONDITIONAL_NODE_PARAMS = 32768 since 12030;
    }

    /// Flags of `cuUserObjectCreate`.
    CUuserObject_flags: u32 {
        /// No synchronization with the destructor; required.
        CU_USER_OBJECT_NO_DESTRUCTOR_SYNC = 1;
    }

    /// Flags of `cuGraphRetainUserObject`.
    CUuserObjectRetain_flags: u32 {
        /// The graph takes the caller's references instead of new ones.
        CU_GRAPH_USER_OBJECT_MOVE = 1;
    }
}

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
        /// No work, only dependencies.
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
        CU_GRAPH_NODE_TYPE_CONDITIONAL = 13 since 12030;
    }

    /// The type of an edge.
    CUgraphDependencyType: u32 {
        /// A full dependency.
        CU_GRAPH_DEPENDENCY_TYPE_DEFAULT = 0 since 12030;
        /// A programmatic dependency (PDL).
        CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC = 1 since 12030;
    }

    /// Attributes of `cuDeviceGetGraphMemAttribute`: bytes as `u64`.
    CUgraphMem_attribute: u32 {
        /// Memory that graphs currently use.
        CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT = 0;
        /// High watermark of the attribute above; can be set to 0.
        CU_GRAPH_MEM_ATTR_USED_MEM_HIGH = 1;
        /// Memory that is currently reserved for graphs.
        CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT = 2;
        /// High watermark of the attribute above; can be set to 0.
        CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH = 3;
    }
}

structures! {
    /// The kind of dependency of an edge; all zeros for a full one. Since driver 12030.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CUgraphEdgeData {
        /// The outgoing port of the upstream node; 0 is its completion.
        pub from_port: u8,
        /// The incoming port of the downstream node; 0 is the whole node.
        pub to_port: u8,
        /// The type of the edge, a [`CUgraphDependencyType`] in one byte: 0 is a full dependency.
        pub r#type: u8,
        /// Zeros.
        pub reserved: [u8; 5],
    }
}
