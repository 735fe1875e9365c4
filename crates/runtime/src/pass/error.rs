//! The error of appending an operation to a pass.

use std::ops::Range;

use retrograph_kernel_abi::DType;
#[cfg(feature = "kernels")]
use retrograph_kernels::KernelError;

use super::operation::OpId;
use crate::library::{MatrixShape, Ranks};

/// An operation that was refused. The pass is unchanged.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PassError {
    /// The constructor of a kernel refused its operands. With the feature `kernels`.
    #[cfg(feature = "kernels")]
    #[error(transparent)]
    Kernel(#[from] KernelError),

    /// A slice belongs to another pass.
    #[error("`{operation}` is given a slice of another pass; declare the buffer in `{pass}`")]
    WrongPass {
        /// The operation.
        operation: String,
        /// The pass that refuses it.
        pass: String,
    },

    /// A slice is longer than its buffer.
    #[error("`{operation}` accesses bytes {bytes:?} of `{buffer}`, which has {buffer_bytes} bytes")]
    OutsideBuffer {
        /// The operation.
        operation: String,
        /// The buffer.
        buffer: String,
        /// The bytes that would be accessed.
        bytes: Range<usize>,
        /// The size of the buffer.
        buffer_bytes: usize,
    },

    /// A transient is read before it is written in the same step.
    #[error(
        "`{operation}` reads bytes {bytes:?} of the transient `{buffer}`, which no earlier \
         operation writes"
    )]
    ReadBeforeWrite {
        /// The operation.
        operation: String,
        /// The transient.
        buffer: String,
        /// The first uninitialized range.
        bytes: Range<usize>,
    },

    /// Two arguments of one operation overlap, and at least one of them is written.
    #[error(
        "`{operation}` writes bytes {bytes:?} of `{buffer}`, which another of its arguments also \
         accesses; only an argument that is updated in place may overlap arguments that are read"
    )]
    Aliased {
        /// The operation.
        operation: String,
        /// The buffer.
        buffer: String,
        /// The bytes that both access.
        bytes: Range<usize>,
    },

    /// A tensor map of a kernel describes bytes that none of its other arguments accesses.
    #[error(
        "`{operation}` has a tensor map of bytes {bytes:?} of `{buffer}`, which none of its other \
         arguments accesses, so no edge would order it"
    )]
    UndeclaredTensorMap {
        /// The operation.
        operation: String,
        /// The buffer.
        buffer: String,
        /// The bytes that the map describes.
        bytes: Range<usize>,
    },

    /// The tensor of a tensor map is longer than the bytes of its argument.
    #[error(
        "`{operation}` has a tensor map of {needed} bytes in bytes {bytes:?} of `{buffer}`; give \
         it a longer slice"
    )]
    TensorMapBytes {
        /// The operation.
        operation: String,
        /// The buffer.
        buffer: String,
        /// The bytes of the argument.
        bytes: Range<usize>,
        /// Bytes from the first element of the tensor to the end of the last one.
        needed: u64,
    },

    /// An operation is named that another pass returned.
    #[error("operation {operation} belongs to another pass; name an operation of `{pass}`")]
    OtherPass {
        /// The operation.
        operation: OpId,
        /// The pass that refuses it.
        pass: String,
    },

    /// An operation would wait for an operation that is not before it.
    #[error("operation {later} cannot wait for {first}, which is not an operation before it")]
    NotInOrder {
        /// The operation that comes first.
        first: OpId,
        /// The operation that waits.
        later: OpId,
    },

    /// A control would be written.
    #[error("`{operation}` writes the control `{buffer}`; only the host sets controls")]
    WritesControl {
        /// The operation.
        operation: String,
        /// The control.
        buffer: String,
    },

    /// The two sides of a copy differ in length.
    #[error(
        "a copy from `{source_name}` ({source_len} elements) to `{target}` ({target_len} elements)"
    )]
    LengthMismatch {
        /// The buffer that is read.
        source_name: String,
        /// Elements read.
        source_len: usize,
        /// The buffer that is written.
        target: String,
        /// Elements written.
        target_len: usize,
    },

    /// The number of arguments differs from the number of parameters.
    #[error("`{operation}` has {given} arguments, but its kernel takes {expected}")]
    ArgumentCount {
        /// The operation.
        operation: String,
        /// Arguments of the launch.
        given: usize,
        /// Parameters of the kernel.
        expected: usize,
    },

    /// An argument has another type than its parameter.
    #[error("`{operation}`: argument {index} is not of the type of parameter `{parameter}`")]
    ArgumentKind {
        /// The operation.
        operation: String,
        /// Position of the argument.
        index: usize,
        /// The parameter of the kernel.
        parameter: &'static str,
    },

    /// An operand of a library's matrix product has another length than its matrix, or is empty.
    #[error("the matrix `{operand}` of a library product has {expected} elements, not {found}")]
    MatrixLength {
        /// `a`, `b` or `c`.
        operand: &'static str,
        /// Elements of the matrix; 0 is also refused.
        expected: usize,
        /// Elements of the slice.
        found: usize,
    },

    /// A size of a library's matrix product exceeds the library's limit.
    #[error("a library product of {shape:?} has a size of more than 2^31 - 1; split it")]
    MatrixSize {
        /// The sizes.
        shape: MatrixShape,
    },

    /// Two custom images have the same name but different texts.
    #[error("`{operation}`: two different custom images are both called `{image}`")]
    ImageName {
        /// The operation.
        operation: String,
        /// The name that both have.
        image: String,
    },

    /// A group has no collectives.
    #[error("a group of collectives is empty; add one, or append no group")]
    NoCollectives,

    /// A collective of blocks has a length that the number of ranks does not divide.
    #[error("{len} elements cannot be divided into equal blocks for {count} ranks; pad them")]
    NotDivisible {
        /// Elements of the slice.
        len: usize,
        /// The number of ranks.
        count: usize,
    },

    /// NCCL does not support the element type of a collective.
    #[error("NCCL has no collectives of {dtype}; exchange another dtype")]
    NotCollective {
        /// The dtype.
        dtype: DType,
    },

    /// A collective names a rank that does not exist.
    #[error("there is no rank {rank} among {count}")]
    NoSuchRank {
        /// The rank.
        rank: usize,
        /// The number of ranks.
        count: usize,
    },

    /// Collectives of one pass have different ranks.
    #[error(
        "the collective is for rank {} of {}, but earlier ones are for rank {} of {}; describe all \
         collectives of a pass for the same ranks",
        ranks.rank, ranks.world_size, held.rank, held.world_size
    )]
    OtherRanks {
        /// The ranks of the collective.
        ranks: Ranks,
        /// The ranks of earlier ones.
        held: Ranks,
    },
}
