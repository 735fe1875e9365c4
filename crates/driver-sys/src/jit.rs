//! Options of the JIT and of the linker.

use crate::enumeration::enumerations;

enumerations! {
    /// Options of loading and linking. Values are passed as pointers; numbers are cast to pointers.
    CUjit_option: u32 {
        /// Maximum registers of a thread.
        CU_JIT_MAX_REGISTERS = 0;
        /// Minimum threads of a block to compile for; the driver writes back the number it reached.
        CU_JIT_THREADS_PER_BLOCK = 1;
        /// Elapsed milliseconds, written back as a float.
        CU_JIT_WALL_TIME = 2;
        /// Buffer for messages.
        CU_JIT_INFO_LOG_BUFFER = 3;
        /// Size of that buffer in bytes; the driver writes back the used size.
        CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES = 4;
        /// Buffer for error messages.
        CU_JIT_ERROR_LOG_BUFFER = 5;
        /// Size of that buffer in bytes; the driver writes back the used size.
        CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6;
        /// Optimization level, 0 to 4.
        CU_JIT_OPTIMIZATION_LEVEL = 7;
        /// Compile for the device of the current context; takes no value.
        CU_JIT_TARGET_FROM_CUCONTEXT = 8;
        /// Compile for a given SM target, as [`CUjit_target`].
        CU_JIT_TARGET = 9;
        /// The preferred image if no cubin matches, as [`CUjit_fallback`].
        CU_JIT_FALLBACK_STRATEGY = 10;
        /// Generate debug information: 0 or 1.
        CU_JIT_GENERATE_DEBUG_INFO = 11;
        /// Verbose logs: 0 or 1.
        CU_JIT_LOG_VERBOSE = 12;
        /// Generate line information: 0 or 1.
        CU_JIT_GENERATE_LINE_INFO = 13;
        /// The default cache mode of loads, as [`CUjit_cacheMode`].
        CU_JIT_CACHE_MODE = 14;
        /// Internal to the driver.
        CU_JIT_NEW_SM3X_OPT = 15;
        /// Internal to the driver.
        CU_JIT_FAST_COMPILE = 16;
        /// Names of device symbols that are relocated to host addresses.
        CU_JIT_GLOBAL_SYMBOL_NAMES = 17;
        /// Their addresses.
        CU_JIT_GLOBAL_SYMBOL_ADDRESSES = 18;
        /// Their number.
        CU_JIT_GLOBAL_SYMBOL_COUNT = 19;
        /// Deprecated: link-time optimization (LTO).
        CU_JIT_LTO = 20;
        /// Deprecated, for LTO: flush denormals to zero.
        CU_JIT_FTZ = 21;
        /// Deprecated, for LTO: correctly rounded division.
        CU_JIT_PREC_DIV = 22;
        /// Deprecated, for LTO: correctly rounded square roots.
        CU_JIT_PREC_SQRT = 23;
        /// Deprecated, for LTO: contract to fused multiply-add.
        CU_JIT_FMA = 24;
        /// Deprecated, for LTO: names of kernels to keep.
        CU_JIT_REFERENCED_KERNEL_NAMES = 25;
        /// Deprecated, for LTO: how many.
        CU_JIT_REFERENCED_KERNEL_COUNT = 26;
        /// Deprecated, for LTO: names of variables to keep.
        CU_JIT_REFERENCED_VARIABLE_NAMES = 27;
        /// Deprecated, for LTO: how many.
        CU_JIT_REFERENCED_VARIABLE_COUNT = 28;
        /// Deprecated, for LTO: drop variables that nothing refers to.
        CU_JIT_OPTIMIZE_UNUSED_DEVICE_VARIABLES = 29;
        /// Generate position-independent code: 0 or 1.
        CU_JIT_POSITION_INDEPENDENT_CODE = 30;
        /// Minimum blocks of a multiprocessor to compile for.
        CU_JIT_MIN_CTA_PER_SM = 31 since 12030;
        /// Maximum threads of a block to compile for.
        CU_JIT_MAX_THREADS_PER_BLOCK = 32 since 12040;
        /// Whether options override directives in the PTX: 0 or 1.
        CU_JIT_OVERRIDE_DIRECTIVE_VALUES = 33 since 12040;
        /// Maximum threads to compile with; 0 for as many as the machine has.
        CU_JIT_SPLIT_COMPILE = 34 since 13000;
    }

    /// SM targets by their number; `A` adds 0x10000 and `F` adds 0x20000.
    CUjit_target: u32 {
        /// sm_30.
        CU_TARGET_COMPUTE_30 = 30;
        /// sm_32.
        CU_TARGET_COMPUTE_32 = 32;
        /// sm_35.
        CU_TARGET_COMPUTE_35 = 35;
        /// sm_37.
        CU_TARGET_COMPUTE_37 = 37;
        /// sm_50.
        CU_TARGET_COMPUTE_50 = 50;
        /// sm_52.
        CU_TARGET_COMPUTE_52 = 52;
        /// sm_53.
        CU_TARGET_COMPUTE_53 = 53;
        /// sm_60.
        CU_TARGET_COMPUTE_60 = 60;
        /// sm_61.
        CU_TARGET_COMPUTE_61 = 61;
        /// sm_62.
        CU_TARGET_COMPUTE_62 = 62;
        /// sm_70.
        CU_TARGET_COMPUTE_70 = 70;
        /// sm_72.
        CU_TARGET_COMPUTE_72 = 72;
        /// sm_75.
        CU_TARGET_COMPUTE_75 = 75;
        /// sm_80.
        CU_TARGET_COMPUTE_80 = 80;
        /// sm_86.
        CU_TARGET_COMPUTE_86 = 86;
        /// sm_87.
        CU_TARGET_COMPUTE_87 = 87;
        /// sm_89.
        CU_TARGET_COMPUTE_89 = 89;
        /// sm_90.
        CU_TARGET_COMPUTE_90 = 90;
        /// sm_100.
        CU_TARGET_COMPUTE_100 = 100 since 12080;
        /// sm_103.
        CU_TARGET_COMPUTE_103 = 103 since 12090;
        /// sm_110.
        CU_TARGET_COMPUTE_110 = 110 since 13000;
        /// sm_120.
        CU_TARGET_COMPUTE_120 = 120 since 12080;
        /// sm_121.
        CU_TARGET_COMPUTE_121 = 121 since 12090;
        /// sm_90a.
        CU_TARGET_COMPUTE_90A = 0x1005A;
        /// sm_100a.
        CU_TARGET_COMPUTE_100A = 0x10064 since 12080;
        /// sm_103a.
        CU_TARGET_COMPUTE_103A = 0x10067 since 12090;
        /// sm_110a.
        CU_TARGET_COMPUTE_110A = 0x1006E since 13000;
        /// sm_120a.
        CU_TARGET_COMPUTE_120A = 0x10078 since 12080;
        /// sm_121a.
        CU_TARGET_COMPUTE_121A = 0x10079 since 12090;
        /// sm_100f.
        CU_TARGET_COMPUTE_100F = 0x20064 since 12090;
        /// sm_103f.
        CU_TARGET_COMPUTE_103F = 0x20067 since 12090;
        /// sm_110f.
        CU_TARGET_COMPUTE_110F = 0x2006E since 13000;
        /// sm_120f.
        CU_TARGET_COMPUTE_120F = 0x20078 since 12090;
        /// sm_121f.
        CU_TARGET_COMPUTE_121F = 0x20079 since 12090;
    }

    /// The preferred image if no cubin matches.
    CUjit_fallback: u32 {
        /// Compile PTX.
        CU_PREFER_PTX = 0;
        /// Use a compatible cubin.
        CU_PREFER_BINARY = 1;
    }

    /// The default cache mode of loads.
    CUjit_cacheMode: u32 {
        /// As specified by each instruction.
        CU_JIT_CACHE_OPTION_NONE = 0;
        /// Cache only in L2.
        CU_JIT_CACHE_OPTION_CG = 1;
        /// Cache in L1 and L2.
        CU_JIT_CACHE_OPTION_CA = 2;
    }

    /// The kind of an input of the linker.
    CUjitInputType: u32 {
        /// Compiled code for one SM target.
        CU_JIT_INPUT_CUBIN = 0;
        /// PTX, ending with a zero byte.
        CU_JIT_INPUT_PTX = 1;
        /// Several images; the driver selects one.
        CU_JIT_INPUT_FATBINARY = 2;
        /// A host object with embedded device code.
        CU_JIT_INPUT_OBJECT = 3;
        /// An archive of such objects.
        CU_JIT_INPUT_LIBRARY = 4;
        /// Deprecated: NVVM IR for link-time optimization.
        CU_JIT_INPUT_NVVM = 5;
    }
}
