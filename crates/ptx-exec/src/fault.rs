//! Faults of kernels and errors of decoding.

use std::fmt;

use retrograph_ptx::ast::{SourcePosition, StateSpace};

use super::undefined::{ProxyMisuse, Undefined};

/// A fault that stopped a kernel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {site}")]
pub struct Fault {
    /// The kind.
    pub kind: FaultKind,
    /// The instruction and thread.
    pub site: Box<FaultSite>,
}

/// The kind of a fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FaultKind {
    /// An access outside all live allocations, variables and parameters.
    #[error("{bytes} bytes at {address:#x} of {} memory are out of bounds", space_name(*.space))]
    OutOfBounds {
        /// The first address.
        address: u64,
        /// Number of bytes.
        bytes: u32,
        /// The state space.
        space: StateSpace,
    },
    /// An access of `shared::cta` at an address of another block of the cluster.
    #[error("{bytes} bytes at {address:#x} are in the shared memory of another block")]
    OtherBlock {
        /// The first address.
        address: u64,
        /// Number of bytes.
        bytes: u32,
    },
    /// An access whose address is not a multiple of its size.
    #[error("{bytes} bytes at {address:#x} of {} memory are misaligned", space_name(*.space))]
    Misaligned {
        /// The first address.
        address: u64,
        /// Number of bytes, which the address must be a multiple of.
        bytes: u32,
        /// The state space.
        space: StateSpace,
    },
    /// The kernel executed `trap`.
    #[error("the kernel executed a trap")]
    Trap,
    /// The kernel called `__assertfail`, as a failed `assert` of CUDA C++ does.
    #[error("{file}:{line}: {function}: the assertion `{message}` failed")]
    Assertion {
        /// The condition.
        message: String,
        /// The source file.
        file: String,
        /// The line.
        line: u32,
        /// The function.
        function: String,
    },
    /// The kernel called `cudaGraphSetConditional`, but its launch is not part of a graph.
    #[error("cudaGraphSetConditional in a launch that is not part of a graph")]
    OutsideGraph,
    /// Threads of a warp wait at different barriers, or at different instructions, for each other.
    #[error("threads of one warp wait for each other at different barriers")]
    BarrierDivergence,
    /// No warp of a block can make progress.
    #[error("no warp of the block can make progress: {waiting}; it stopped")]
    Deadlock {
        /// What each warp waits for.
        waiting: String,
    },
    /// Undefined behaviour of mbarriers, bulk copies, tensor maps or `setmaxnreg`.
    #[error("undefined behaviour: {0}")]
    AsyncProxy(Box<ProxyMisuse>),
    /// A block executed more instructions than the limit of the launch.
    #[error(
        "one block executed {limit} instructions; {}the kernel may never end",
        not_started.map(|blocks| format!("{blocks}; ")).unwrap_or_default()
    )]
    StepLimit {
        /// The limit.
        limit: u64,
        /// The blocks that have not started, if the device cannot hold all blocks.
        not_started: Option<NotStarted>,
    },
    /// A data race: two unordered accesses to the same byte, at least one of them a write.
    #[error(
        "a race: {this} of the byte at {address:#x} of {} memory is not ordered with {that} of it \
         {other}, and comes",
        space_name(*.space)
    )]
    Race {
        /// The byte.
        address: u64,
        /// The state space.
        space: StateSpace,
        /// The access of this thread.
        this: RacingAccess,
        /// The access of the other thread.
        that: RacingAccess,
        /// The instruction of the other thread.
        other: Box<FaultSite>,
    },
    /// Undefined behaviour of another instruction.
    #[error("undefined behaviour: {0}")]
    Undefined(Undefined),
}

/// Blocks of a grid that have not started, because the device can hold no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NotStarted {
    /// The resident blocks.
    pub resident: u64,
    /// The blocks that have not started.
    pub waiting: u64,
    /// All blocks of the grid.
    pub blocks: u64,
}

impl fmt::Display for NotStarted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resident, waiting, blocks } = self;
        write!(
            f,
            "{resident} of {blocks} blocks are resident, and {waiting} start only when one of \
             these ends"
        )
    }
}

/// An access that takes part in a race.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RacingAccess {
    /// A read.
    Read,
    /// A write.
    Write,
}

impl fmt::Display for RacingAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "a read",
            Self::Write => "a write",
        })
    }
}

fn space_name(space: StateSpace) -> &'static str {
    space.modifier().text()
}

/// The position of a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FaultSite {
    /// The kernel.
    pub kernel: String,
    /// The block, `%ctaid`.
    pub block: [u32; 3],
    /// The first thread with the fault, `%tid`.
    pub thread: [u32; 3],
    /// The index of the instruction among the statements of the kernel.
    pub statement: usize,
    /// The line of the PTX text, or 0 if the kernel was not parsed from text.
    pub line: u32,
    /// The line of the source that the PTX was compiled from, if the PTX has line information.
    pub source: Option<SourcePosition>,
    /// The instruction as PTX.
    pub text: String,
}

impl fmt::Display for FaultSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([bx, by, bz], [tx, ty, tz]) = (self.block, self.thread);
        write!(
            f,
            "in kernel `{}`, block ({bx}, {by}, {bz}), thread ({tx}, {ty}, {tz}), ",
            self.kernel
        )?;
        write!(f, "statement {}", self.statement)?;
        match (self.line, &self.source) {
            (0, _) => {}
            (line, None) => write!(f, " (line {line})")?,
            (line, Some(source)) => write!(f, " (line {line}, from {source})")?,
        }
        write!(f, ": {}", self.text)
    }
}

/// An error of decoding a kernel. No part of the kernel ran.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The module has no such entry.
    #[error("the module has no entry `{entry}`")]
    NoSuchEntry {
        /// The name.
        entry: String,
    },
    /// An instruction, or a combination of its modifiers and types, that is not implemented.
    #[error("kernel `{kernel}`, line {line}: the simulator does not implement `{text}`: {what}")]
    Unsupported {
        /// The kernel.
        kernel: String,
        /// The line of the PTX text, or 0.
        line: u32,
        /// The instruction as PTX.
        text: String,
        /// The missing feature.
        what: String,
    },
    /// A variable of the module without an address.
    #[error("kernel `{kernel}`: the variable `{variable}` of the module has no address")]
    UnplacedVariable {
        /// The kernel.
        kernel: String,
        /// The variable.
        variable: String,
    },
    /// The static shared memory exceeds the maximum of a block, or the local memory the maximum of
    /// a thread.
    #[error(
        "kernel `{kernel}` has {bytes} bytes of {} memory, above the maximum of {limit}; its \
         largest variable is `{variable}`",
        space_name(*.space)
    )]
    TooMuchMemory {
        /// The kernel.
        kernel: String,
        /// Shared or local memory.
        space: StateSpace,
        /// The largest variable in it.
        variable: String,
        /// Bytes of all variables.
        bytes: u64,
        /// The maximum bytes.
        limit: u64,
    },
}
