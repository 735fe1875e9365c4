//! Launch attributes, some of which also apply to streams and kernel nodes.

mod policy;
mod value;

use crate::enumeration::{enumerations, flags};
use crate::handle::CUstream;
use crate::structure::{structures, zeroed};

pub use policy::{
    CUaccessPolicyWindow, CUaccessProperty, CUclusterSchedulingPolicy, CUlaunchMemSyncDomain,
    CUlaunchMemSyncDomainMap, CUsynchronizationPolicy,
};
pub(crate) use policy::{ENUMERATIONS as POLICIES, LAYOUTS as POLICY_LAYOUTS};
pub(crate) use value::LAYOUTS as VALUES;
pub use value::{
    CUlaunchAttributeValue, CUlaunchAttributeValue_clusterDim,
    CUlaunchAttributeValue_deviceUpdatableKernelNode, CUlaunchAttributeValue_launchCompletionEvent,
    CUlaunchAttributeValue_preferredClusterDim, CUlaunchAttributeValue_programmaticEvent,
};

flags! {
    /// Entries of the list `extra` of a launch, cast to pointers, which passes all parameters as
    /// one buffer.
    CUlaunchParam: usize {
        /// The end of the list.
        CU_LAUNCH_PARAM_END_AS_INT = 0;
        /// The next entry is the address of the buffer.
        CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT = 1;
        /// The next entry is the address of its size, a `usize`.
        CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT = 2;
    }
}

enumerations! {
    /// The name of an attribute of launches; some also belong to streams or kernel nodes.
    CUlaunchAttributeID: u32 {
        /// Ignored entry.
        CU_LAUNCH_ATTRIBUTE_IGNORE = 0;
        /// `accessPolicyWindow`: how accesses to a range use the L2 cache.
        CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW = 1;
        /// `cooperative`: all blocks are resident at once.
        CU_LAUNCH_ATTRIBUTE_COOPERATIVE = 2;
        /// `syncPolicy` of streams: how a thread waits.
        CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY = 3;
        /// `clusterDim`: the size of clusters.
        CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION = 4;
        /// `clusterSchedulingPolicyPreference`.
        CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE = 5;
        /// `programmaticStreamSerializationAllowed`: programmatic dependent launch (PDL); the
        /// launch may begin before the previous one in the stream ends.
        CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6;
        /// `programmaticEvent`: an event that kernels record.
        CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT = 7;
        /// `priority`.
        CU_LAUNCH_ATTRIBUTE_PRIORITY = 8;
        /// `memSyncDomainMap`: maps the two logical domains to physical ones.
        CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP = 9;
        /// `memSyncDomain`: the logical domain of fences.
        CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN = 10;
        /// `preferredClusterDim`: a larger cluster size, used if it fits.
        CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION = 11 since 12080;
        /// `launchCompletionEvent`: an event recorded once all blocks have begun.
        CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT = 12 since 12030;
        /// `deviceUpdatableKernelNode`: whether kernels can change the node.
        CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE = 13 since 12040;
        /// `sharedMemCarveout`: preferred shared memory carveout.
        CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT = 14 since 12050;
        /// `nvlinkUtilCentricScheduling`: NVLink-centric scheduling.
        CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING = 16 since 13000;
    }
}

structures! {
    /// An attribute: name and value.
    #[derive(Clone, Copy)]
    pub struct CUlaunchAttribute {
        /// The identifier.
        pub id: CUlaunchAttributeID,
        /// Zeros.
        pub pad: [u8; 4],
        /// Its value.
        pub value: CUlaunchAttributeValue,
    }

    /// The configuration of `cuLaunchKernelEx`: geometry, stream and attributes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CUlaunchConfig {
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
        /// The stream.
        pub hStream: CUstream,
        /// The attributes; null if there are none.
        pub attrs: *mut CUlaunchAttribute,
        /// Their number.
        pub numAttrs: u32,
    }
}

zeroed! { CUlaunchAttribute, CUlaunchConfig }
