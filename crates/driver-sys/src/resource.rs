//! Resources of a device, which are divided into parts for green contexts.

use crate::enumeration::{enumerations, flags};
use crate::structure::{structures, zeroed};

enumerations! {
    /// The type of a resource. Since driver 12040.
    CUdevResourceType: u32 {
        /// Not a resource.
        CU_DEV_RESOURCE_TYPE_INVALID = 0 since 12040;
        /// Multiprocessors.
        CU_DEV_RESOURCE_TYPE_SM = 1 since 12040;
    }
}

flags! {
    /// Flags of `cuDevSmResourceSplitByCount`.
    CUdevSmResourceSplit_flags: u32 {
        /// Allows groups of fewer multiprocessors, which may not run large clusters.
        CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING = 1 since 12040;
        /// Makes groups that run the largest clusters, where possible.
        CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE = 2 since 12040;
    }

    /// Flags of `cuGreenCtxCreate`.
    CUgreenCtxCreate_flags: u32 {
        /// Creates the default stream of the context.
        CU_GREEN_CTX_DEFAULT_STREAM = 1 since 12040;
    }
}

structures! {
    /// Multiprocessors.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CUdevSmResource {
        /// How many.
        pub smCount: u32,
        /// The fewest of them that a group can have. Since driver 13000.
        pub minSmPartitionSize: u32,
        /// How many of them share a cluster of the hardware; groups have a multiple of that. Since
        /// driver 13000.
        pub smCoscheduledAlignment: u32,
    }

    /// The content of a resource; its type says which.
    #[derive(Clone, Copy)]
    pub union CUdevResource_anonymous {
        /// Multiprocessors.
        pub sm: CUdevSmResource,
        /// Makes all of them 48 bytes.
        pub _oversize: [u8; 48],
    }

    /// A resource. Only the driver changes it. Since driver 12040.
    #[derive(Clone, Copy)]
    pub struct CUdevResource {
        /// The type of the resource.
        pub r#type: CUdevResourceType,
        /// For the driver.
        pub _internal_padding: [u8; 92],
        /// The content.
        pub anonymous: CUdevResource_anonymous,
    }
}

zeroed!(CUdevResource);
