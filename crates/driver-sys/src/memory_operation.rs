//! Stream memory operations: waits for words in memory, writes, and barriers.

use crate::enumeration::{enumerations, flags};
use crate::memory::CUdeviceptr;
use crate::structure::{structures, zeroed};

flags! {
    /// Flags of a wait: how the word in memory is compared.
    CUstreamWaitValue_flags: u32 {
        /// Until the word is the value or after it, as a signed difference that may wrap.
        CU_STREAM_WAIT_VALUE_GEQ = 0;
        /// Until the word equals the value.
        CU_STREAM_WAIT_VALUE_EQ = 1;
        /// Until a bit of the value is set in the word.
        CU_STREAM_WAIT_VALUE_AND = 2;
        /// Until a bit is set neither in the word nor in the value.
        CU_STREAM_WAIT_VALUE_NOR = 3;
        /// In addition, flushes remote writes: writes of other devices before the word are visible
        /// after the wait.
        CU_STREAM_WAIT_VALUE_FLUSH = 0x4000_0000;
    }

    /// Flags of a write.
    CUstreamWriteValue_flags: u32 {
        /// Earlier work of the stream is visible before the word.
        CU_STREAM_WRITE_VALUE_DEFAULT = 0;
        /// Without that memory barrier.
        CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER = 1;
    }

    /// Flags of a barrier: its scope.
    CUstreamMemoryBarrier_flags: u32 {
        /// The whole system.
        CU_STREAM_MEMORY_BARRIER_TYPE_SYS = 0;
        /// The device.
        CU_STREAM_MEMORY_BARRIER_TYPE_GPU = 1;
    }
}

enumerations! {
    /// The kind of a memory operation.
    CUstreamBatchMemOpType: u32 {
        /// A wait for a 32-bit word.
        CU_STREAM_MEM_OP_WAIT_VALUE_32 = 1;
        /// A write of a 32-bit word.
        CU_STREAM_MEM_OP_WRITE_VALUE_32 = 2;
        /// A flush of writes of other devices.
        CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES = 3;
        /// A wait for a 64-bit word.
        CU_STREAM_MEM_OP_WAIT_VALUE_64 = 4;
        /// A write of a 64-bit word.
        CU_STREAM_MEM_OP_WRITE_VALUE_64 = 5;
        /// A barrier.
        CU_STREAM_MEM_OP_BARRIER = 6;
    }
}

structures! {
    /// The value of a wait or a write; the kind of the operation determines its width.
    #[derive(Clone, Copy)]
    pub union CUstreamMemOpValueParams_anonymous {
        /// Of a 32-bit operation.
        pub value: u32,
        /// Of a 64-bit operation.
        pub value64: u64,
    }

    /// A wait.
    #[derive(Clone, Copy)]
    pub struct CUstreamMemOpWaitValueParams {
        /// The kind.
        pub operation: CUstreamBatchMemOpType,
        /// The address of the word.
        pub address: CUdeviceptr,
        /// The compared value.
        pub anonymous: CUstreamMemOpValueParams_anonymous,
        /// Flags `CU_STREAM_WAIT_VALUE_…`.
        pub flags: u32,
        /// Internal to the driver.
        pub alias: CUdeviceptr,
    }

    /// A write.
    #[derive(Clone, Copy)]
    pub struct CUstreamMemOpWriteValueParams {
        /// The kind.
        pub operation: CUstreamBatchMemOpType,
        /// The address of the word.
        pub address: CUdeviceptr,
        /// The written value.
        pub anonymous: CUstreamMemOpValueParams_anonymous,
        /// Flags `CU_STREAM_WRITE_VALUE_…`.
        pub flags: u32,
        /// Internal to the driver.
        pub alias: CUdeviceptr,
    }

    /// A flush of writes of other devices.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CUstreamMemOpFlushRemoteWritesParams {
        /// The kind.
        pub operation: CUstreamBatchMemOpType,
        /// 0.
        pub flags: u32,
    }

    /// A barrier.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CUstreamMemOpMemoryBarrierParams {
        /// The kind.
        pub operation: CUstreamBatchMemOpType,
        /// Flags `CU_STREAM_MEMORY_BARRIER_TYPE_…`.
        pub flags: u32,
    }

    /// A memory operation; the kind, the first field of each struct, selects the field.
    #[derive(Clone, Copy)]
    pub union CUstreamBatchMemOpParams {
        /// The kind.
        pub operation: CUstreamBatchMemOpType,
        /// A wait.
        pub waitValue: CUstreamMemOpWaitValueParams,
        /// A write.
        pub writeValue: CUstreamMemOpWriteValueParams,
        /// A flush.
        pub flushRemoteWrites: CUstreamMemOpFlushRemoteWritesParams,
        /// A barrier.
        pub memoryBarrier: CUstreamMemOpMemoryBarrierParams,
        /// Pads the union to 48 bytes.
        pub pad: [u64; 6],
    }
}

zeroed! { CUstreamMemOpWaitValueParams, CUstreamMemOpWriteValueParams, CUstreamBatchMemOpParams }
