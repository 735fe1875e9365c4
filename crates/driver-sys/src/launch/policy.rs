//! Values of some launch attributes.

use std::ffi::c_void;

use crate::enumeration::enumerations;
use crate::structure::{structures, zeroed};

enumerations! {
    /// How an access uses the L2 cache.
    CUaccessProperty: u32 {
        /// As usual.
        CU_ACCESS_PROPERTY_NORMAL = 0;
        /// Unlikely to be used again.
        CU_ACCESS_PROPERTY_STREAMING = 1;
        /// Likely to be used again.
        CU_ACCESS_PROPERTY_PERSISTING = 2;
    }

    /// How a thread waits for a stream.
    CUsynchronizationPolicy: u32 {
        /// As in the context.
        CU_SYNC_POLICY_AUTO = 1;
        /// Spin.
        CU_SYNC_POLICY_SPIN = 2;
        /// Yield the processor between polls.
        CU_SYNC_POLICY_YIELD = 3;
        /// Sleep.
        CU_SYNC_POLICY_BLOCKING_SYNC = 4;
    }

    /// How clusters are scheduled.
    CUclusterSchedulingPolicy: u32 {
        /// The driver chooses.
        CU_CLUSTER_SCHEDULING_POLICY_DEFAULT = 0;
        /// Spread the blocks of a cluster.
        CU_CLUSTER_SCHEDULING_POLICY_SPREAD = 1;
        /// Let the hardware balance.
        CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING = 2;
    }

    /// A logical domain of memory synchronization.
    CUlaunchMemSyncDomain: u32 {
        /// The domain of normal launches.
        CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT = 0;
        /// The domain of launches that mostly access remote memory.
        CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE = 1;
    }
}

structures! {
    /// How accesses to a range of addresses use the L2 cache.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct CUaccessPolicyWindow {
        /// The first address.
        pub base_ptr: *mut c_void,
        /// Bytes.
        pub num_bytes: usize,
        /// The fraction of accesses that are hits, from 0 to 1.
        pub hitRatio: f32,
        /// How hits use the cache.
        pub hitProp: CUaccessProperty,
        /// How the misses use it; not persisting.
        pub missProp: CUaccessProperty,
    }

    /// Maps logical to physical memory synchronization domains.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CUlaunchMemSyncDomainMap {
        /// The domain of normal launches.
        pub default_: u8,
        /// The domain of launches that mostly access remote memory.
        pub remote: u8,
    }
}

zeroed! { CUaccessPolicyWindow }
