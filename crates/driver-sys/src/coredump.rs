//! Settings of GPU core dumps.

use crate::enumeration::{enumerations, flags};

enumerations! {
    /// A setting of core dumps. Since driver 12010.
    CUcoredumpSettings: u32 {
        /// Whether an exception on the device writes a core dump, as `bool`; `false` at first.
        CU_COREDUMP_ENABLE_ON_EXCEPTION = 1 since 12010;
        /// Whether the host writes a core dump, too, as `bool`; `true` at first.
        CU_COREDUMP_TRIGGER_HOST = 2 since 12010;
        /// Whether core dumps lack memory and images, as `bool`; `false` at first.
        CU_COREDUMP_LIGHTWEIGHT = 3 since 12010;
        /// Whether a write to the pipe makes a core dump, as `bool`; `false` at first.
        CU_COREDUMP_ENABLE_USER_TRIGGER = 4 since 12010;
        /// The path of core dumps, a text of up to 1023 characters; `core.cuda.HOST.PID` at first.
        CU_COREDUMP_FILE = 5 since 12010;
        /// The path of the pipe, a text of up to 1023 characters; `corepipe.cuda.HOST.PID` at
        /// first.
        CU_COREDUMP_PIPE = 6 since 12010;
        /// The content of core dumps, as flags `CU_COREDUMP_…` in an `i32`; 0 at first.
        CU_COREDUMP_GENERATION_FLAGS = 7 since 12050;
        /// One past the last setting.
        CU_COREDUMP_MAX = 8 since 12010;
    }
}

flags! {
    /// What core dumps lack. Since driver 12050.
    CUCoredumpGenerationFlags: u32 {
        /// Nothing: everything is dumped.
        CU_COREDUMP_DEFAULT_FLAGS = 0 since 12050;
        /// Images that are not relocated.
        CU_COREDUMP_SKIP_NONRELOCATED_ELF_IMAGES = 1 since 12050;
        /// Global memory.
        CU_COREDUMP_SKIP_GLOBAL_MEMORY = 2 since 12050;
        /// Shared memory.
        CU_COREDUMP_SKIP_SHARED_MEMORY = 4 since 12050;
        /// Local memory.
        CU_COREDUMP_SKIP_LOCAL_MEMORY = 8 since 12050;
        /// The abort of the host process, which otherwise follows a core dump.
        CU_COREDUMP_SKIP_ABORT = 16 since 12050;
        /// Constant memory.
        CU_COREDUMP_SKIP_CONSTBANK_MEMORY = 32 since 12050;
        /// Images and all memory.
        CU_COREDUMP_LIGHTWEIGHT_FLAGS = 47 since 12050;
    }
}
