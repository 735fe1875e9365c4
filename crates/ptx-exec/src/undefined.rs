//! Undefined behaviour of the PTX ISA that the executor detects.

use retrograph_ptx::ast::{StateSpace, Type};

use crate::tensor_map::TensorMapError;

/// Undefined behaviour of an instruction, apart from [`ProxyMisuse`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Undefined {
    /// The operands of `bar` and `barrier`.
    #[error("a barrier beyond 15, or a thread count that is not a multiple of 32")]
    Barrier,
    /// `barrier.cluster.arrive` and `barrier.cluster.wait` of a warp do not alternate.
    #[error("barrier.cluster.arrive twice without a wait, or a wait without an arrive")]
    ClusterBarrier,
    /// `cudaCGSynchronize` with the handle of another grid.
    #[error(
        "cudaCGSynchronize needs the handle that cudaCGGetIntrinsicHandle returns in this grid"
    )]
    GridBarrier,
    /// `cudaGraphSetConditional` with a handle that the graph does not have.
    #[error("cudaGraphSetConditional needs a conditional handle of the graph that runs")]
    ConditionalHandle,
    /// The index of `brx.idx`.
    #[error("the index of brx.idx is outside of its table")]
    BranchIndex,
    /// A call through a pointer that is not the address of a function of the module.
    #[error("a call of an address that is not the address of a function of this module")]
    CallTarget,
    /// `free` of an address that `malloc` has not returned, or that is already free.
    #[error("free of an address that is not a block of malloc, or was freed before")]
    Freed,
    /// Calls are nested too deeply for the stack of a thread.
    #[error("the stack of a thread, {} bytes, is full", super::call_stack::STACK_BYTES)]
    StackOverflow,
    /// The membermasks of a warp operation differ.
    #[error("the lanes of a warp operation have different membermasks")]
    MembermasksDiffer,
    /// A lane outside the membermask executes a warp operation.
    #[error("a lane executes a warp operation whose membermask lacks it")]
    NotAMember,
    /// A lane of the membermask does not execute a warp operation.
    #[error("a lane of the membermask skips the warp operation")]
    MemberSkips,
    /// A shuffle reads an inactive lane.
    #[error("a shuffle reads a lane that does not execute it")]
    ShuffleSource,
    /// A matrix instruction that not all lanes of the warp execute.
    #[error("not all lanes of a warp execute a matrix instruction")]
    PartialMatrix,
    /// A `wgmma` instruction that not all lanes of the warp execute.
    #[error("not all lanes of a warp execute a wgmma instruction")]
    PartialWgmma,
    /// The address or leading dimension of `wmma.load` or `wmma.store` differs between lanes.
    #[error("the lanes have different addresses or leading dimensions of a matrix")]
    MatrixAddressesDiffer,
    /// `cp.async` with a source size above the copy size.
    #[error("the source of cp.async is larger than the copy")]
    CopySize,
    /// The scale-d operand of `wgmma.mma_async` differs between threads.
    #[error("the threads of a warp have different scale-d operands")]
    ScaleDiffers,
    /// The matrix descriptors of `wgmma.mma_async` differ between threads.
    #[error("the threads of a warp have different matrix descriptors")]
    DescriptorsDiffer,
    /// A matrix descriptor without the 128-byte swizzle, the only supported one.
    #[error("a matrix descriptor without the 128-byte swizzle")]
    Swizzle,
    /// A matrix descriptor whose groups of eight rows are not aligned.
    #[error("a matrix descriptor whose lines do not start at multiples of 1024 bytes")]
    DescriptorAlignment,
    /// `wgmma.mma_async` with accumulators that were accessed after the last `wgmma.fence`.
    #[error("accumulators are used without wgmma.fence")]
    UnfencedAccumulators,
    /// `wgmma.mma_async` with registers of a that were written after the last `wgmma.fence`.
    #[error("registers of matrix a are used without wgmma.fence")]
    UnfencedMatrixA,
    /// An accumulator of a `wgmma.mma_async` in flight was written.
    #[error("an accumulator was written while its wgmma is in flight")]
    AccumulatorWritten,
    /// A register of a of a `wgmma.mma_async` in flight was written.
    #[error("a register of matrix a was written while its wgmma is in flight")]
    MatrixAWritten,
    /// Two `wgmma.mma_async` of different shapes in flight have the same accumulators.
    #[error("wgmma instructions of different shapes in flight share accumulators")]
    AccumulatorsShared,
    /// `wgmma.mma_async` reads shared memory that was written through the generic proxy.
    #[error("wgmma reads shared memory that was written without fence.proxy.async after it")]
    UnfencedSharedMemory,
}

/// Undefined behaviour of `mbarrier`, `cp.async.bulk`, tensor maps, `setmaxnreg` and `mapa`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProxyMisuse {
    /// The address of an mbarrier is not a multiple of 8.
    #[error("the mbarrier at {address:#x} is not at a multiple of 8")]
    BarrierAlignment {
        /// The address in shared memory.
        address: u64,
    },
    /// `mbarrier.init` with 0 or too many arrivals.
    #[error("mbarrier.init at {address:#x} with {count} arrivals")]
    BarrierCount {
        /// The address in shared memory.
        address: u64,
        /// The arrivals of a phase.
        count: u32,
    },
    /// `mbarrier.init` over an mbarrier.
    #[error(
        "mbarrier.init at {address:#x} overlaps the mbarrier at {other:#x}; end that with \
         mbarrier.inval"
    )]
    BarrierExists {
        /// The address in shared memory.
        address: u64,
        /// The address of the other mbarrier.
        other: u64,
    },
    /// An access to an mbarrier without `mbarrier.init`.
    #[error("no mbarrier is initialized at {address:#x}; execute mbarrier.init first")]
    NoBarrier {
        /// The address in shared memory.
        address: u64,
    },
    /// The bytes of an mbarrier were overwritten.
    #[error("the mbarrier at {address:#x} was overwritten")]
    BarrierOverwritten {
        /// The address in shared memory.
        address: u64,
    },
    /// A bulk copy names an mbarrier that is not visible to the async proxy.
    #[error(
        "a bulk copy completes at the mbarrier at {address:#x}, which was made without \
         fence.mbarrier_init after it"
    )]
    UnfencedBarrier {
        /// The address in shared memory.
        address: u64,
    },
    /// More arrivals than the phase needs.
    #[error(
        "too many arrivals at the mbarrier at {address:#x}: phase {phase} needs {pending} of its \
         {expected} arrivals, and {count} come"
    )]
    TooManyArrivals {
        /// The address in shared memory.
        address: u64,
        /// The phase.
        phase: u64,
        /// Pending arrivals of the phase.
        pending: u32,
        /// Arrivals of every phase.
        expected: u32,
        /// Arrivals of the instruction.
        count: u32,
    },
    /// `mbarrier.arrive.noComplete` completes a phase.
    #[error("mbarrier.arrive.noComplete at {address:#x} completes phase {phase}")]
    CompletesPhase {
        /// The address in shared memory.
        address: u64,
        /// The phase.
        phase: u64,
    },
    /// The transaction count of a phase is out of range.
    #[error("phase {phase} of the mbarrier at {address:#x} waits for {bytes} bytes, above {limit}")]
    TransactionBytes {
        /// The address in shared memory.
        address: u64,
        /// The phase.
        phase: u64,
        /// The transaction count.
        bytes: i64,
        /// The maximum.
        limit: u32,
    },
    /// `mbarrier.try_wait` with a parity above 1.
    #[error("a wait for parity {parity} at {address:#x}")]
    Parity {
        /// The address in shared memory.
        address: u64,
        /// The parity.
        parity: u64,
    },
    /// An address operand outside shared memory.
    #[error("the address {address:#x} is in .{space} memory")]
    NotShared {
        /// The address.
        address: u64,
        /// Its state space.
        space: StateSpace,
    },
    /// The size or global address of a bulk copy is not a multiple of 16.
    #[error("a bulk copy of {bytes} bytes at {address:#x}; both must be multiples of 16")]
    CopyAlignment {
        /// The address in global memory.
        address: u64,
        /// The size.
        bytes: u64,
    },
    /// An access to the target of a bulk load in flight.
    #[error(
        "{} shared memory at {address:#x}: a bulk copy to {start:#x}..{end:#x} is in flight until \
         the mbarrier at {mbarrier:#x} completes its phase",
        if *writes { "a write to" } else { "a read of" }
    )]
    TargetInFlight {
        /// The first byte of the access.
        address: u64,
        /// Whether the access writes.
        writes: bool,
        /// The first byte of the target.
        start: u64,
        /// The end of the target.
        end: u64,
        /// The mbarrier of the load.
        mbarrier: u64,
    },
    /// A write to the source of a bulk store in flight.
    #[error(
        "a write to shared memory at {address:#x}: a bulk store of {start:#x}..{end:#x} still \
         reads it; wait with cp.async.bulk.wait_group.read"
    )]
    SourceInFlight {
        /// The first byte of the write.
        address: u64,
        /// The first byte of the source.
        start: u64,
        /// The end of the source.
        end: u64,
    },
    /// A bulk store of bytes that were written through the generic proxy.
    #[error(
        "a bulk store reads shared memory at {address:#x} that was written without \
         fence.proxy.async after it"
    )]
    UnfencedSource {
        /// The first such byte.
        address: u64,
    },
    /// The block ended before a bulk load.
    #[error("the block ended while this bulk copy to its shared memory is in flight")]
    BlockEnded,
    /// An element type without support for `cp.reduce.async.bulk`.
    #[error("the simulator does not add {element} elements")]
    NoAddition {
        /// The element type of the tensor map.
        element: Type,
    },
    /// The address of a tensor map is not a multiple of 64.
    #[error("the tensor map at {address:#x} is not at a multiple of 64")]
    MapAlignment {
        /// The generic address.
        address: u64,
    },
    /// The operand of a copy is not a valid tensor map.
    #[error("the bytes at {address:#x} are {error}")]
    Map {
        /// The generic address.
        address: u64,
        /// The reason.
        error: TensorMapError,
    },
    /// The number of coordinates differs from the rank of the tensor map.
    #[error("a copy of {rank} dimensions with a tensor map of {dimensions}")]
    Rank {
        /// Coordinates of the instruction.
        rank: usize,
        /// Dimensions of the tensor map.
        dimensions: usize,
    },
    /// `mapa` or a copy to a block that the cluster lacks.
    #[error("block {rank} of a cluster of {blocks}")]
    ClusterRank {
        /// The block.
        rank: u32,
        /// Blocks of the cluster.
        blocks: u32,
    },
    /// An access, an arrival or a copy to a block of the cluster that has ended.
    #[error(
        "block {rank} of the cluster has ended; blocks that others reach must wait for them at \
         the barrier of the cluster"
    )]
    ClusterBlockEnded {
        /// The block.
        rank: u32,
    },
    /// The target of a copy and its mbarrier are in different blocks.
    #[error("a copy to block {target} of the cluster completes at an mbarrier of block {mbarrier}")]
    ClusterMbarrier {
        /// The block of the target.
        target: u32,
        /// The block of the mbarrier.
        mbarrier: u32,
    },
    /// `setmaxnreg` that not all lanes of the warp execute.
    #[error("not all lanes of a warp execute setmaxnreg")]
    PartialWarp,
    /// `setmaxnreg.inc` to fewer registers, or `setmaxnreg.dec` to more.
    #[error(
        "setmaxnreg.{} from {before} to {count} registers",
        if *increases { "inc" } else { "dec" }
    )]
    RegisterCount {
        /// Whether the instruction is `setmaxnreg.inc`.
        increases: bool,
        /// Registers of a thread before.
        before: u32,
        /// Registers of a thread after.
        count: u32,
    },
}
