//! Functions and modules: attributes and loading states.

use crate::enumeration::enumerations;

enumerations! {
    /// Attributes of `cuFuncGetAttribute` and `cuKernelGetAttribute`.
    CUfunction_attribute: u32 {
        /// Maximum threads of a block that this function can be launched with.
        CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0;
        /// Static shared memory in bytes.
        CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1;
        /// Constant memory in bytes.
        CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES = 2;
        /// Local memory of a thread in bytes: more than 0 without local variables means spills.
        CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 3;
        /// Registers of a thread.
        CU_FUNC_ATTRIBUTE_NUM_REGS = 4;
        /// PTX target as major × 10 + minor.
        CU_FUNC_ATTRIBUTE_PTX_VERSION = 5;
        /// Device code version as major × 10 + minor.
        CU_FUNC_ATTRIBUTE_BINARY_VERSION = 6;
        /// Whether loads go through all caches.
        CU_FUNC_ATTRIBUTE_CACHE_MODE_CA = 7;
        /// Maximum dynamic shared memory in bytes; can be set.
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8;
        /// Share of the L1 cache that is shared memory, in percent, or -1; can be set.
        CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT = 9;
        /// Whether launches must specify the cluster size.
        CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET = 10;
        /// Blocks of a cluster along x that the code requires, or 0; can be set.
        CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH = 11;
        /// Blocks of a cluster along y that the code requires, or 0; can be set.
        CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT = 12;
        /// Blocks of a cluster along z that the code requires, or 0; can be set.
        CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH = 13;
        /// Whether clusters may be larger than every device can run: 0 or 1; can be set.
        CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14;
        /// How clusters are scheduled, as `CUclusterSchedulingPolicy`; can be set.
        CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE = 15;
    }

    /// Values of `CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT` with a name.
    CUshared_carveout: i32 {
        /// The driver chooses.
        CU_SHAREDMEM_CARVEOUT_DEFAULT = -1;
        /// As much L1 cache as possible.
        CU_SHAREDMEM_CARVEOUT_MAX_L1 = 0;
        /// As much shared memory as possible.
        CU_SHAREDMEM_CARVEOUT_MAX_SHARED = 100;
    }

    /// When functions are loaded.
    CUmoduleLoadingMode: u32 {
        /// With their module.
        CU_MODULE_EAGER_LOADING = 1;
        /// When they are first used.
        CU_MODULE_LAZY_LOADING = 2;
    }

    /// The loading state of a function.
    CUfunctionLoadingState: u32 {
        /// Not loaded.
        CU_FUNCTION_LOADING_STATE_UNLOADED = 0 since 12040;
        /// Loaded.
        CU_FUNCTION_LOADING_STATE_LOADED = 1 since 12040;
    }
}
