//! Modules, functions and the options of the JIT.

use crate::enumeration::enumerations;

enumerations! {
    /// Options of `cuModuleLoadDataEx`. Values travel as pointers: numbers are cast to one.
    CUjit_option: u32 {
        /// Most registers of a thread.
        CU_JIT_MAX_REGISTERS = 0;
        /// Least threads of a block to compile for; the driver writes back what it reached.
        CU_JIT_THREADS_PER_BLOCK = 1;
        /// Milliseconds spent, written back as a float.
        CU_JIT_WALL_TIME = 2;
        /// Where to write messages.
        CU_JIT_INFO_LOG_BUFFER = 3;
        /// Size of that buffer; the driver writes back how much it filled.
        CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES = 4;
        /// Where to write errors.
        CU_JIT_ERROR_LOG_BUFFER = 5;
        /// Size of that buffer; the driver writes back how much it filled.
        CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6;
        /// Optimization level, 0 to 4.
        CU_JIT_OPTIMIZATION_LEVEL = 7;
        /// Compile for the device of the current context.
        CU_JIT_TARGET_FROM_CUCONTEXT = 8;
        /// Compile for a given SM target.
        CU_JIT_TARGET = 9;
        /// Which image to prefer when a cubin does not match.
        CU_JIT_FALLBACK_STRATEGY = 10;
        /// Make debug information.
        CU_JIT_GENERATE_DEBUG_INFO = 11;
        /// Say more in the logs.
        CU_JIT_LOG_VERBOSE = 12;
        /// Make line information.
        CU_JIT_GENERATE_LINE_INFO = 13;
        /// Which caches loads go through.
        CU_JIT_CACHE_MODE = 14;
    }

    /// What `cuFuncGetAttribute` can be asked.
    CUfunction_attribute: u32 {
        /// Most threads of a block that this function can be launched with.
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
        /// Most dynamic shared memory in bytes; can be set.
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8;
        /// Share of the L1 cache that is shared memory, in percent, or -1; can be set.
        CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT = 9;
    }
}
