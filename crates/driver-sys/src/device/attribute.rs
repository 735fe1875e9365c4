//! Attributes of devices.

use crate::enumeration::enumerations;

enumerations! {
    /// Attributes of `cuDeviceGetAttribute`. Boolean ones are 1 or 0.
    CUdevice_attribute: u32 {
        /// Maximum threads in one block.
        CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 1;
        /// Maximum threads of a block along x.
        CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X = 2;
        /// Maximum threads of a block along y.
        CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y = 3;
        /// Maximum threads of a block along z.
        CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z = 4;
        /// Maximum blocks of a grid along x.
        CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X = 5;
        /// Maximum blocks of a grid along y.
        CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y = 6;
        /// Maximum blocks of a grid along z.
        CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z = 7;
        /// Shared memory of a block in bytes, without opting in to more.
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK = 8;
        /// Older name of the attribute above.
        CU_DEVICE_ATTRIBUTE_SHARED_MEMORY_PER_BLOCK = 8;
        /// Constant memory in bytes.
        CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY = 9;
        /// Threads in a warp.
        CU_DEVICE_ATTRIBUTE_WARP_SIZE = 10;
        /// Maximum bytes between rows of a copy of a rectangle.
        CU_DEVICE_ATTRIBUTE_MAX_PITCH = 11;
        /// 32-bit registers available to one block.
        CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK = 12;
        /// Older name of the attribute above.
        CU_DEVICE_ATTRIBUTE_REGISTERS_PER_BLOCK = 12;
        /// Clock rate in kHz.
        CU_DEVICE_ATTRIBUTE_CLOCK_RATE = 13;
        /// Alignment of textures in bytes.
        CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT = 14;
        /// Whether copies and kernels can overlap; see also `ASYNC_ENGINE_COUNT`.
        CU_DEVICE_ATTRIBUTE_GPU_OVERLAP = 15;
        /// Number of multiprocessors.
        CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16;
        /// Whether kernels are subject to a run time limit.
        CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT = 17;
        /// Whether the device is integrated and shares memory with the host.
        CU_DEVICE_ATTRIBUTE_INTEGRATED = 18;
        /// Whether host memory can be mapped into device addresses.
        CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY = 19;
        /// Who may create contexts, as [`CUcomputemode`](crate::CUcomputemode).
        CU_DEVICE_ATTRIBUTE_COMPUTE_MODE = 20;
        /// Maximum texels of a one-dimensional texture.
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH = 21;
        /// Maximum texels of a two-dimensional texture along x.
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH = 22;
        /// Maximum texels of a two-dimensional texture along y.
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT = 23;
        /// Maximum texels of a three-dimensional texture along x.
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH = 24;
        /// Maximum texels of a three-dimensional texture along y.
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT = 25;
        /// Maximum texels of a three-dimensional texture along z.
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH = 26;
        /// Maximum texels of a layered two-dimensional texture along x.
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH = 27;
        /// Maximum texels of a layered two-dimensional texture along y.
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_HEIGHT = 28;
        /// Maximum layers of a two-dimensional texture.
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS = 29;
        /// Older name of the attribute above.
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_ARRAY_WIDTH = 27;
        /// Older name of the attribute above.
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_ARRAY_HEIGHT = 28;
        /// Older name of the attribute above.
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_ARRAY_NUMSLICES = 29;
        /// Alignment of surfaces in bytes.
        CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT = 30;
        /// Whether kernels of different streams can run at the same time.
        CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS = 31;
        /// Whether memory is protected by error correction.
        CU_DEVICE_ATTRIBUTE_ECC_ENABLED = 32;
        /// PCI bus.
        CU_DEVICE_ATTRIBUTE_PCI_BUS_ID = 33;
        /// PCI device.
        CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID = 34;
        /// Whether the device runs under the TCC driver of Windows.
        CU_DEVICE_ATTRIBUTE_TCC_DRIVER = 35;
        /// Memory clock rate in kHz.
        CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE = 36;
        /// Width of the memory bus in bits.
        CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH = 37;
        /// Size of the L2 cache in bytes.
        CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE = 38;
        /// Maximum resident threads of one multiprocessor.
        CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR = 39;
        /// Number of copy engines.
        CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT = 40;
        /// Whether host and device share one address space.
        CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING = 41;
        /// Maximum texels of a layered one-dimensional texture.
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_WIDTH = 42;
        /// Maximum layers of a one-dimensional texture.
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_LAYERS = 43;
        /// Deprecated.
        CU_DEVICE_ATTRIBUTE_CAN_TEX2D_GATHER = 44;
        /// Maximum texels along x of a two-dimensional texture that is gathered from.
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_WIDTH = 45;
        /// Maximum texels along y of a two-dimensional texture that is gathered from.
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_HEIGHT = 46;
        /// Alternate maximum texels of a three-dimensional texture along x.
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE = 47;
        /// Alternate maximum texels of a three-dimensional texture along y.
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE = 48;
        /// Alternate maximum texels of a three-dimensional texture along z.
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE = 49;
        /// PCI domain.
        CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID = 50;
        /// Alignment in bytes of the distance between rows of a texture.
        CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT = 51;
        /// Maximum texels of an edge of a cube map texture.
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_WIDTH = 52;
        /// Maximum texels of an edge of a layered cube map texture.
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH = 53;
        /// Maximum layers of a cube map texture.
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS = 54;
        /// Maximum elements of a one-dimensional surface.
        CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_WIDTH = 55;
        /// Maximum elements of a two-dimensional surface along x.
        CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_WIDTH = 56;
        /// Maximum elements of a two-dimensional surface along y.
        CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_HEIGHT = 57;
        /// Maximum elements of a three-dimensional surface along x.
        CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_WIDTH = 58;
        /// Maximum elements of a three-dimensional surface along y.
        CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_HEIGHT = 59;
        /// Maximum elements of a three-dimensional surface along z.
        CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_DEPTH = 60;
        /// Maximum elements of a layered one-dimensional surface.
        CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_WIDTH = 61;
        /// Maximum layers of a one-dimensional surface.
        CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_LAYERS = 62;
        /// Maximum elements of a layered two-dimensional surface along x.
        CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_WIDTH = 63;
        /// Maximum elements of a layered two-dimensional surface along y.
        CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_HEIGHT = 64;
        /// Maximum layers of a two-dimensional surface.
        CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_LAYERS = 65;
        /// Maximum elements of an edge of a cube map surface.
        CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_WIDTH = 66;
        /// Maximum elements of an edge of a layered cube map surface.
        CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH = 67;
        /// Maximum layers of a cube map surface.
        CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS = 68;
        /// Deprecated.
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH = 69;
        /// Maximum texels of a linear two-dimensional texture along x.
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH = 70;
        /// Maximum texels of a linear two-dimensional texture along y.
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT = 71;
        /// Maximum bytes between rows of a linear two-dimensional texture.
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH = 72;
        /// Maximum texels of a mipmapped two-dimensional texture along x.
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH = 73;
        /// Maximum texels of a mipmapped two-dimensional texture along y.
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT = 74;
        /// Compute capability, the part before the dot.
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75;
        /// Compute capability, the part after the dot.
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76;
        /// Maximum texels of a mipmapped one-dimensional texture.
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH = 77;
        /// Whether streams have priorities.
        CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED = 78;
        /// Whether global memory can be cached in L1.
        CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED = 79;
        /// Whether local memory can be cached in L1.
        CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED = 80;
        /// Shared memory of one multiprocessor in bytes.
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR = 81;
        /// 32-bit registers of one multiprocessor.
        CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR = 82;
        /// Whether managed memory is supported.
        CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY = 83;
        /// Whether the board carries several devices.
        CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD = 84;
        /// A number that the devices of one board share.
        CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID = 85;
        /// Whether atomic operations between host and device are native.
        CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED = 86;
        /// Ratio of single-precision to double-precision throughput.
        CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO = 87;
        /// Whether kernels can use pageable host memory without registering it.
        CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS = 88;
        /// Whether host and kernels can use managed memory at the same time.
        CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS = 89;
        /// Whether kernels can be preempted.
        CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED = 90;
        /// Whether registered host memory has the same address for kernels.
        CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM = 91;
        /// Whether the first form of stream memory operations is supported.
        CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1 = 92;
        /// Whether the first form of 64-bit stream memory operations is supported.
        CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1 = 93;
        /// Whether `CU_STREAM_WAIT_VALUE_NOR` exists in the first form of stream memory operations.
        CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1 = 94;
        /// Whether cooperative launches are supported.
        CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH = 95;
        /// Deprecated: whether cooperative launches over several devices exist.
        CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH = 96;
        /// Shared memory of a block in bytes for a function that opted in.
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97;
        /// Whether writes of other devices can be flushed by a wait.
        CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES = 98;
        /// Whether `cuMemHostRegister_v2` works.
        CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED = 99;
        /// Whether kernels access pageable memory through the host's page tables.
        CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES = 100;
        /// Whether the host can use managed memory on the device without moving it.
        CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST = 101;
        /// Whether virtual memory management (`cuMemMap` and so on) is supported.
        CU_DEVICE_ATTRIBUTE_VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED = 102;
        /// Older name of the attribute above.
        CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED = 102;
        /// Whether memory can be exported as a file descriptor.
        CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED = 103;
        /// Whether memory can be exported as a Windows NT handle.
        CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_HANDLE_SUPPORTED = 104;
        /// Whether memory can be exported as a Windows KMT handle.
        CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_KMT_HANDLE_SUPPORTED = 105;
        /// Maximum resident blocks of one multiprocessor.
        CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR = 106;
        /// Whether memory can be compressed.
        CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED = 107;
        /// Maximum bytes of the L2 cache for persisting accesses.
        CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE = 108;
        /// Maximum bytes of an access policy window.
        CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE = 109;
        /// Whether memory of `cuMemCreate` can be used for GPUDirect RDMA.
        CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED = 110;
        /// Shared memory per block that is reserved by the system, in bytes.
        CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK = 111;
        /// Whether sparse arrays are supported.
        CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED = 112;
        /// Whether host memory can be registered read-only.
        CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED = 113;
        /// Whether external timeline semaphores are supported.
        CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED = 114;
        /// Whether `cuMemAllocAsync` and memory pools are supported.
        CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED = 115;
        /// Whether GPUDirect RDMA works.
        CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED = 116;
        /// Ways to flush writes of GPUDirect RDMA, as flags.
        CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS = 117;
        /// The scope in which writes of GPUDirect RDMA are visible without a flush.
        CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING = 118;
        /// Kinds of handles that pools can be exported as, as flags.
        CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES = 119;
        /// Whether launches in clusters are supported.
        CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH = 120;
        /// Whether deferred mapping of arrays is supported.
        CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED = 121;
        /// Whether 64-bit stream memory operations are supported.
        CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS = 122;
        /// Whether `CU_STREAM_WAIT_VALUE_NOR` is supported.
        CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR = 123;
        /// Whether memory can be exported as a dma-buf.
        CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED = 124;
        /// Whether events can be shared with other processes.
        CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED = 125;
        /// Number of domains of memory synchronization.
        CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT = 126;
        /// Whether tensor maps are supported.
        CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED = 127;
        /// Whether memory can be exported to other machines of a fabric.
        CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED = 128 since 12030;
        /// Whether function pointers of host and device are the same.
        CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS = 129;
        /// The NUMA configuration, as [`CUdeviceNumaConfig`](crate::CUdeviceNumaConfig).
        CU_DEVICE_ATTRIBUTE_NUMA_CONFIG = 130 since 12020;
        /// NUMA node of device memory.
        CU_DEVICE_ATTRIBUTE_NUMA_ID = 131 since 12020;
        /// Whether multicast objects are supported.
        CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED = 132 since 12010;
        /// Whether this process uses the multi-process service (MPS).
        CU_DEVICE_ATTRIBUTE_MPS_ENABLED = 133 since 12030;
        /// NUMA node of the host that is closest, or -1.
        CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID = 134 since 12020;
        /// Whether contexts can share the device with D3D12.
        CU_DEVICE_ATTRIBUTE_D3D12_CIG_SUPPORTED = 135 since 12050;
        /// Algorithms of the decompression engine, as flags.
        CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK = 136 since 12080;
        /// Maximum bytes that the decompression engine takes at once.
        CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_MAXIMUM_LENGTH = 137 since 12080;
        /// Whether contexts can share the device with Vulkan.
        CU_DEVICE_ATTRIBUTE_VULKAN_CIG_SUPPORTED = 138 since 12090;
        /// PCI device and vendor, 16 bits each.
        CU_DEVICE_ATTRIBUTE_GPU_PCI_DEVICE_ID = 139 since 12080;
        /// PCI subsystem and its vendor, 16 bits each.
        CU_DEVICE_ATTRIBUTE_GPU_PCI_SUBSYSTEM_ID = 140 since 12080;
        /// Whether physical memory can be created on NUMA nodes of the host.
        CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED = 141 since 12090;
        /// Whether pools can be created on NUMA nodes of the host.
        CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED = 142 since 12090;
        /// Whether memory on NUMA nodes of the host can be shared with other machines.
        CU_DEVICE_ATTRIBUTE_HOST_NUMA_MULTINODE_IPC_SUPPORTED = 143 since 12080;
        /// Whether pools can be created in host memory.
        CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED = 144 since 13000;
        /// Whether physical memory can be created in host memory.
        CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED = 145 since 13000;
        /// Whether host memory can be exported as a dma-buf.
        CU_DEVICE_ATTRIBUTE_HOST_ALLOC_DMA_BUF_SUPPORTED = 146 since 13000;
        /// Whether only some atomic operations between host and device are native.
        CU_DEVICE_ATTRIBUTE_ONLY_PARTIAL_HOST_NATIVE_ATOMIC_SUPPORTED = 147 since 13000;
    }
}
