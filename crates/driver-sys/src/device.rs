//! Devices and contexts.

use crate::enumeration::enumerations;

/// The ordinal of a device as the driver numbers it.
pub type CUdevice = i32;

/// The identity of a device across processes and reboots.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CUuuid {
    /// The sixteen bytes.
    pub bytes: [u8; 16],
}

enumerations! {
    /// What `cuDeviceGetAttribute` can be asked.
    CUdevice_attribute: u32 {
        /// Most threads in one block.
        CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 1;
        /// Most threads of a block along x.
        CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X = 2;
        /// Most threads of a block along y.
        CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y = 3;
        /// Most threads of a block along z.
        CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z = 4;
        /// Most blocks of a grid along x.
        CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X = 5;
        /// Most blocks of a grid along y.
        CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y = 6;
        /// Most blocks of a grid along z.
        CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z = 7;
        /// Shared memory of a block in bytes, without opting in to more.
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK = 8;
        /// Constant memory in bytes.
        CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY = 9;
        /// Threads in a warp.
        CU_DEVICE_ATTRIBUTE_WARP_SIZE = 10;
        /// 32-bit registers available to one block.
        CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK = 12;
        /// Clock rate in kHz.
        CU_DEVICE_ATTRIBUTE_CLOCK_RATE = 13;
        /// Number of multiprocessors.
        CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16;
        /// Whether kernels are subject to a run time limit.
        CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT = 17;
        /// Whether the device shares its memory with the host.
        CU_DEVICE_ATTRIBUTE_INTEGRATED = 18;
        /// Whether host memory can be mapped into device addresses.
        CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY = 19;
        /// Who may create contexts.
        CU_DEVICE_ATTRIBUTE_COMPUTE_MODE = 20;
        /// Whether kernels of different streams can run at the same time.
        CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS = 31;
        /// Whether memory is protected by error correction.
        CU_DEVICE_ATTRIBUTE_ECC_ENABLED = 32;
        /// PCI bus.
        CU_DEVICE_ATTRIBUTE_PCI_BUS_ID = 33;
        /// PCI device.
        CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID = 34;
        /// Memory clock rate in kHz.
        CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE = 36;
        /// Width of the memory bus in bits.
        CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH = 37;
        /// Size of the L2 cache in bytes.
        CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE = 38;
        /// Most resident threads of one multiprocessor.
        CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR = 39;
        /// Number of copy engines.
        CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT = 40;
        /// Whether host and device share one address space.
        CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING = 41;
        /// PCI domain.
        CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID = 50;
        /// Compute capability, the part before the dot.
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75;
        /// Compute capability, the part after the dot.
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76;
        /// Whether streams have priorities.
        CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED = 78;
        /// Shared memory of one multiprocessor in bytes.
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR = 81;
        /// 32-bit registers of one multiprocessor.
        CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR = 82;
        /// Whether managed memory exists.
        CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY = 83;
        /// Whether cooperative launches exist.
        CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH = 95;
        /// Shared memory of a block in bytes for a function that opted in.
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97;
        /// Most resident blocks of one multiprocessor.
        CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR = 106;
        /// Shared memory of each block that the system keeps for itself, in bytes.
        CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK = 111;
        /// Whether `cuMemAllocAsync` and memory pools exist.
        CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED = 115;
        /// Whether launches in clusters exist.
        CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH = 120;
    }

    /// What `cuCtxGetLimit` can be asked.
    CUlimit: u32 {
        /// Stack of one thread in bytes.
        CU_LIMIT_STACK_SIZE = 0;
        /// Buffer of `printf` in kernels, in bytes.
        CU_LIMIT_PRINTF_FIFO_SIZE = 1;
        /// Heap of `malloc` in kernels, in bytes.
        CU_LIMIT_MALLOC_HEAP_SIZE = 2;
        /// How deep launches from kernels may be synchronized.
        CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH = 3;
        /// How many launches from kernels may wait.
        CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT = 4;
        /// Largest L2 fetch in bytes.
        CU_LIMIT_MAX_L2_FETCH_GRANULARITY = 5;
        /// Part of the L2 cache set aside for persisting accesses, in bytes.
        CU_LIMIT_PERSISTING_L2_CACHE_SIZE = 6;
    }

    /// Flags of a context: how a thread waits for the device.
    CUctx_flags: u32 {
        /// The driver chooses how to wait.
        CU_CTX_SCHED_AUTO = 0;
        /// Spin: least latency.
        CU_CTX_SCHED_SPIN = 1;
        /// Yield the processor between polls.
        CU_CTX_SCHED_YIELD = 2;
        /// Sleep until the device signals.
        CU_CTX_SCHED_BLOCKING_SYNC = 4;
    }
}
