//! Faults of kernels and errors of decoding.

use std::fmt;

use retrograph_ptx::ast::Space;

/// A fault that stopped a kernel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {site}")]
pub struct Fault {
    /// What happened.
    pub kind: FaultKind,
    /// Where it happened.
    pub site: Box<FaultSite>,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultKind {
    /// An access outside of a live allocation, a variable or the parameter block.
    #[error("{bytes} bytes at {address:#x} of {} memory are out of bounds", space_name(*.space))]
    OutOfBounds {
        /// The first address.
        address: u64,
        /// Number of bytes.
        bytes: u32,
        /// The state space.
        space: Space,
    },
    /// An access whose address is not a multiple of its size.
    #[error("{bytes} bytes at {address:#x} of {} memory are misaligned", space_name(*.space))]
    Misaligned {
        /// The first address.
        address: u64,
        /// Number of bytes, which the address should be a multiple of.
        bytes: u32,
        /// The state space.
        space: Space,
    },
    /// The kernel executed `trap`.
    #[error("the kernel executed a trap")]
    Trap,
    /// Threads wait at a barrier for threads that wait elsewhere or at another instruction.
    #[error("threads wait for each other at different barriers")]
    BarrierDivergence,
    /// No warp of a block can go on, and at least one waits for a barrier in shared memory.
    #[error("no warp of the block can go on: {waiting}; it stopped")]
    Deadlock {
        /// What each warp waits for.
        waiting: String,
    },
    /// Barriers in shared memory, bulk copies or tensor maps are used in a way that is undefined
    /// on hardware.
    #[error("undefined behaviour: {what}")]
    AsyncProxy {
        /// What is undefined.
        what: String,
    },
    /// More instructions were executed than the launch allows.
    #[error("{limit} instructions were executed by one block; the kernel may never end")]
    StepLimit {
        /// The limit.
        limit: u64,
    },
    /// Two threads access the same byte, at least one of them writes, and nothing orders them.
    #[error(
        "a race: {this} of the byte at {address:#x} of {} memory is not ordered with {that} of it \
         {other}, and comes",
        space_name(*.space)
    )]
    Race {
        /// The byte.
        address: u64,
        /// The state space.
        space: Space,
        /// What is done here.
        this: RacingAccess,
        /// What the other thread did.
        that: RacingAccess,
        /// Where the other thread did it.
        other: Box<FaultSite>,
    },
    /// The instruction is undefined on hardware for these operands.
    #[error("undefined behaviour: {what}")]
    Undefined {
        /// What is undefined.
        what: &'static str,
    },
}

/// What a thread that takes part in a race does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RacingAccess {
    /// It reads.
    Read,
    /// It writes.
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

fn space_name(space: Space) -> &'static str {
    space.modifier().text()
}

/// Where a fault happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultSite {
    /// The kernel.
    pub kernel: String,
    /// The block, `%ctaid`.
    pub block: [u32; 3],
    /// The first thread that it happened to, `%tid`.
    pub thread: [u32; 3],
    /// The index of the instruction among the statements of the kernel.
    pub statement: usize,
    /// The line of the PTX text, or 0 when the kernel was not parsed from text.
    pub line: u32,
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
        if self.line != 0 {
            write!(f, " (line {})", self.line)?;
        }
        write!(f, ": {}", self.text)
    }
}

/// The executor cannot run a kernel; nothing of it was run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
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
        /// What is not implemented.
        what: String,
    },
    /// A variable of the module that was given no address.
    #[error("kernel `{kernel}`: the variable `{variable}` of the module has no address")]
    UnplacedVariable {
        /// The kernel.
        kernel: String,
        /// The variable.
        variable: String,
    },
}
