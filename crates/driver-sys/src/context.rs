//! Contexts: flags, limits, cache configuration, and creation parameters.

use std::ffi::c_void;

use crate::enumeration::{enumerations, flags};
use crate::structure::{structures, zeroed};

flags! {
    /// Flags of a context: how a thread waits for the device, and how memory behaves.
    CUctx_flags: u32 {
        /// The driver chooses how to wait.
        CU_CTX_SCHED_AUTO = 0;
        /// Spin, for the lowest latency.
        CU_CTX_SCHED_SPIN = 1;
        /// Yield the processor between polls.
        CU_CTX_SCHED_YIELD = 2;
        /// Sleep until the device signals.
        CU_CTX_SCHED_BLOCKING_SYNC = 4;
        /// Older name of `CU_CTX_SCHED_BLOCKING_SYNC`.
        CU_CTX_BLOCKING_SYNC = 4;
        /// The mask of the scheduling bits.
        CU_CTX_SCHED_MASK = 7;
        /// Host memory can be mapped; today it always can.
        CU_CTX_MAP_HOST = 8;
        /// Keep local memory at its largest size after a launch that needed more.
        CU_CTX_LMEM_RESIZE_TO_MAX = 16;
        /// Write a core dump after a fault of a kernel.
        CU_CTX_COREDUMP_ENABLE = 32 since 12010;
        /// Let the user trigger a core dump through a pipe.
        CU_CTX_USER_COREDUMP_ENABLE = 64 since 12010;
        /// Make synchronous memory operations always wait.
        CU_CTX_SYNC_MEMOPS = 128 since 12010;
        /// All bits.
        CU_CTX_FLAGS_MASK = 255;
    }
}

enumerations! {
    /// Limits of `cuCtxGetLimit`.
    CUlimit: u32 {
        /// Stack of one thread in bytes.
        CU_LIMIT_STACK_SIZE = 0;
        /// Buffer of `printf` in kernels, in bytes.
        CU_LIMIT_PRINTF_FIFO_SIZE = 1;
        /// Heap of `malloc` in kernels, in bytes.
        CU_LIMIT_MALLOC_HEAP_SIZE = 2;
        /// Maximum depth at which launches from kernels may be synchronized.
        CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH = 3;
        /// Maximum number of pending launches from kernels.
        CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT = 4;
        /// Largest L2 fetch in bytes.
        CU_LIMIT_MAX_L2_FETCH_GRANULARITY = 5;
        /// Part of the L2 cache set aside for persisting accesses, in bytes.
        CU_LIMIT_PERSISTING_L2_CACHE_SIZE = 6;
        /// Shared memory in bytes of a context that shares the device with graphics.
        CU_LIMIT_SHMEM_SIZE = 7 since 12050;
        /// Whether the context shares the device with graphics.
        CU_LIMIT_CIG_ENABLED = 8 since 12050;
        /// Whether shared memory falls back to global memory when it does.
        CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED = 9 since 12050;
    }

    /// The preferred split between L1 cache and shared memory, on hardware where it is
    /// configurable.
    CUfunc_cache: u32 {
        /// No preference.
        CU_FUNC_CACHE_PREFER_NONE = 0;
        /// More shared memory.
        CU_FUNC_CACHE_PREFER_SHARED = 1;
        /// More L1 cache.
        CU_FUNC_CACHE_PREFER_L1 = 2;
        /// Equal sizes.
        CU_FUNC_CACHE_PREFER_EQUAL = 3;
    }

    /// The kind of limit of a context to a part of the device.
    CUexecAffinityType: u32 {
        /// By a number of multiprocessors.
        CU_EXEC_AFFINITY_TYPE_SM_COUNT = 0;
    }

    /// The kind of graphics API that a context shares the device with.
    CUcigDataType: u32 {
        /// A queue of D3D12.
        CIG_DATA_TYPE_D3D12_COMMAND_QUEUE = 1 since 12050;
        /// Data from the Vulkan driver.
        CIG_DATA_TYPE_NV_BLOB = 2 since 12090;
    }
}

structures! {
    /// A number of multiprocessors.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CUexecAffinitySmCount {
        /// Their number.
        pub val: u32,
    }

    /// The parameter of a limit; its type says which.
    #[derive(Clone, Copy)]
    pub union CUexecAffinityParam_param {
        /// A number of multiprocessors.
        pub smCount: CUexecAffinitySmCount,
    }

    /// A limit of a context to a part of the device.
    #[derive(Clone, Copy)]
    pub struct CUexecAffinityParam {
        /// The kind of limit.
        pub r#type: CUexecAffinityType,
        /// Its parameter.
        pub param: CUexecAffinityParam_param,
    }

    /// Sharing of the device with graphics. Since driver 12050.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CUctxCigParam {
        /// The kind of `sharedData`.
        pub sharedDataType: CUcigDataType,
        /// The graphics side.
        pub sharedData: *mut c_void,
    }

    /// Parameters of `cuCtxCreate_v4`. Since driver 12050.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CUctxCreateParams {
        /// Limits to a part of the device.
        pub execAffinityParams: *mut CUexecAffinityParam,
        /// Their number.
        pub numExecAffinityParams: i32,
        /// Sharing with graphics, or null. Not together with limits.
        pub cigParams: *mut CUctxCigParam,
    }
}

zeroed! { CUexecAffinityParam, CUctxCigParam, CUctxCreateParams }
