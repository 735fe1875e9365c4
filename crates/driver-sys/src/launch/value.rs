//! The value of a launch attribute: 64 bytes for every attribute.

use super::policy::{
    CUaccessPolicyWindow, CUclusterSchedulingPolicy, CUlaunchMemSyncDomain,
    CUlaunchMemSyncDomainMap, CUsynchronizationPolicy,
};
use crate::handle::{CUevent, CUgraphDeviceNode};
use crate::structure::{structures, zeroed};

structures! {
    /// The size of a cluster in blocks; it must divide the grid.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CUlaunchAttributeValue_clusterDim {
        /// Along x.
        pub x: u32,
        /// Along y.
        pub y: u32,
        /// Along z.
        pub z: u32,
    }

    /// An event that kernels record.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CUlaunchAttributeValue_programmaticEvent {
        /// The event; it must not measure time.
        pub event: CUevent,
        /// Flags `CU_EVENT_RECORD_…`.
        pub flags: i32,
        /// Whether the start of a block triggers it.
        pub triggerAtBlockStart: i32,
    }

    /// An event that is recorded once all blocks have begun.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CUlaunchAttributeValue_launchCompletionEvent {
        /// The event; it must not measure time.
        pub event: CUevent,
        /// Flags `CU_EVENT_RECORD_…`.
        pub flags: i32,
    }

    /// A larger cluster size in blocks, a multiple of the required one.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CUlaunchAttributeValue_preferredClusterDim {
        /// Along x.
        pub x: u32,
        /// Along y.
        pub y: u32,
        /// Along z.
        pub z: u32,
    }

    /// Whether kernels can change the node.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CUlaunchAttributeValue_deviceUpdatableKernelNode {
        /// 1 if so.
        pub deviceUpdatable: i32,
        /// Out: the node as the device names it.
        pub devNode: CUgraphDeviceNode,
    }

    /// The value of an attribute; the identifier selects the field.
    #[derive(Clone, Copy)]
    pub union CUlaunchAttributeValue {
        /// Pads the union to 64 bytes.
        pub pad: [u8; 64],
        /// `CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW`.
        pub accessPolicyWindow: CUaccessPolicyWindow,
        /// `CU_LAUNCH_ATTRIBUTE_COOPERATIVE`: 0 or 1.
        pub cooperative: i32,
        /// `CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY`.
        pub syncPolicy: CUsynchronizationPolicy,
        /// `CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION`.
        pub clusterDim: CUlaunchAttributeValue_clusterDim,
        /// `CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE`.
        pub clusterSchedulingPolicyPreference: CUclusterSchedulingPolicy,
        /// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`: 0 or 1.
        pub programmaticStreamSerializationAllowed: i32,
        /// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT`.
        pub programmaticEvent: CUlaunchAttributeValue_programmaticEvent,
        /// `CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT`. Since driver 12030.
        pub launchCompletionEvent: CUlaunchAttributeValue_launchCompletionEvent,
        /// `CU_LAUNCH_ATTRIBUTE_PRIORITY`: lower numbers are more urgent.
        pub priority: i32,
        /// `CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP`.
        pub memSyncDomainMap: CUlaunchMemSyncDomainMap,
        /// `CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN`.
        pub memSyncDomain: CUlaunchMemSyncDomain,
        /// `CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION`. Since driver 12080.
        pub preferredClusterDim: CUlaunchAttributeValue_preferredClusterDim,
        /// `CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE`. Since driver 12040.
        pub deviceUpdatableKernelNode: CUlaunchAttributeValue_deviceUpdatableKernelNode,
        /// `CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT`: percent. Since driver 12050.
        pub sharedMemCarveout: u32,
        /// `CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING`: 0 or 1. Since driver 13000.
        pub nvlinkUtilCentricScheduling: u32,
    }
}

zeroed! { CUlaunchAttributeValue }
