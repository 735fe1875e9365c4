//! A kernel in the form that the interpreter runs.
//!
//! The registers of a warp are one file of bytes. A 32-bit register of all 32 lanes is a slot of
//! 128 bytes, a 64-bit register one of 256, a predicate one of 4 with a bit for each lane.
//! Constants and special registers are slots that are filled before the warp starts, so that every
//! operand of every instruction is the offset of a slot and the interpreter never asks what an
//! operand is.

use std::sync::Arc;

use retrograph_ptx::ast::{Entry, Module, Space, Special};

use super::integer::LaneFunction;
use super::matrix::Matrix;
use super::staged::StagedCopy;
use super::warpgroup::Warpgroup;

/// The number of the barrier of a cluster, which no barrier of a block has.
pub(super) const CLUSTER_BARRIER: u32 = u32::MAX;

/// Lanes of a warp.
pub(super) const LANES: usize = 32;

/// How wide a slot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Width {
    /// One bit for each lane.
    Predicate,
    /// 32 bits for each lane; 16-bit values are in the lower half, with anything above.
    Word,
    /// 64 bits for each lane.
    Double,
}

impl Width {
    /// Bytes of a slot.
    pub(super) const fn bytes(self) -> u32 {
        match self {
            Self::Predicate => 4,
            Self::Word => 4 * LANES as u32,
            Self::Double => 8 * LANES as u32,
        }
    }
}

/// What the interpreter does. Operands are written in the order of [`Instruction::slots`]; `d` is
/// written, the others are read. Rare instructions are [`Op::Lanes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum Op {
    // d, a: 32 bits.
    Move32,
    Not32,
    Neg32,
    // d, a, b: 32 bits.
    Add32,
    Sub32,
    MulLow32,
    MulHighU32,
    And32,
    Or32,
    Xor32,
    Shl32,
    ShrU32,
    ShrS32,
    MinU32,
    MaxU32,
    MinS32,
    MaxS32,
    DivU32,
    RemU32,
    // d, a, b, c: 32 bits.
    MadLow32,
    // d, a, b, predicate.
    Select32,
    Select64,
    // d, a[, b[, c]]: 64 bits.
    Move64,
    Add64,
    Sub64,
    MulLow64,
    And64,
    Or64,
    Xor64,
    /// The amount is 32 bits wide.
    Shl64,
    ShrU64,
    ShrS64,
    MadLow64,
    // d (64), a (32), b (32)[, c (64)].
    MulWideU32,
    MulWideS32,
    MadWideU32,
    MadWideS32,
    // f32.
    AddF32,
    SubF32,
    MulF32,
    FmaF32,
    DivF32,
    MinF32,
    MaxF32,
    NegF32,
    AbsF32,
    SqrtF32,
    RcpF32,
    RsqrtF32,
    Exp2F32,
    Log2F32,
    // f64.
    AddF64,
    SubF64,
    MulF64,
    FmaF64,
    DivF64,
    SqrtF64,
    NegF64,
    // Conversions.
    U32ToF32,
    S32ToF32,
    U32To64,
    S32To64,
    Low32,
    F32ToF64,
    F64ToF32,
    // Predicate d, a, b; `extra` is all ones when the result is inverted.
    Equal32,
    LessU32,
    LessS32,
    EqualF32,
    LessF32,
    LessEqualF32,
    Equal64,
    LessU64,
    LessS64,
    EqualF64,
    LessF64,
    LessEqualF64,
    // Predicates d, a, b; `extra` as above.
    PredicateAnd,
    PredicateOr,
    PredicateXor,
    // Memory. `extra` is an index into `accesses`. Loads: d…, address. Stores: address, value….
    LoadGlobal1,
    LoadGlobal2,
    LoadGlobal4,
    StoreGlobal1,
    StoreGlobal2,
    StoreGlobal4,
    LoadShared1,
    LoadShared2,
    LoadShared4,
    StoreShared1,
    StoreShared2,
    StoreShared4,
    /// Any load.
    Load,
    /// Any store.
    Store,
    /// target, source, size; `extra` is an index into `copies`.
    StageCopy,
    StageCommit,
    /// `extra` is how many groups may stay open.
    StageWait,
    StageWaitAll,
    /// Operands are those that `matrices` says at index `extra`.
    Matrix,
    /// What `warpgroups` says at index `extra`.
    Warpgroup,
    /// `fence.proxy.async`.
    FenceAsync,
    /// d, address, value[, value]; `extra` is an index into `atomics`.
    Atomic,
    /// A 32-bit parameter at offset `extra`.
    Parameter32,
    /// A 64-bit parameter at offset `extra`.
    Parameter64,
    // Vectors of `extra` parts: d, part… and part…, a.
    Pack,
    Unpack,
    /// Any function of one lane; `extra` is an index into `lanes`.
    Lanes,
    // Control. `extra` is the target of the branch.
    Branch,
    Exit,
    Trap,
    /// What the instruction does here is not defined; `extra` is an [`Undefined`].
    Undefined,
    /// id, count; a count of 0 means the whole block. `extra` is 1 when the warp only arrives.
    Barrier,
    /// members: waits for the lanes that are named.
    WarpBarrier,
    /// d: the lanes that execute the instruction.
    ActiveMask,
    /// d, a, b, c, mask; `extra` is a [`ShuffleMode`].
    Shuffle,
    /// Predicate d, b, c, mask: whether the source lane is in range.
    ShuffleInRange,
    /// d (32), predicate, mask.
    VoteBallot,
    /// Predicate d, predicate, mask.
    VoteAll,
    VoteAny,
    VoteUniform,
    /// d (32), value, members: the lanes with the same value; `extra` is 1 for values of 64 bits.
    MatchAny,
    /// d (32), predicate, value, members: whether all lanes have the same value.
    MatchAll,
    /// d (32), value, members; `extra` is a [`ReduceOperation`].
    ///
    /// [`ReduceOperation`]: super::cross::ReduceOperation
    Reduce,
    /// d (32), predicate, members.
    Elect,
    /// id, predicate: adds to what the threads of a barrier contribute.
    Contribute,
    /// d, id: what the threads contributed that the last barrier `id` let go.
    ContributionCount,
    ContributionAll,
    ContributionAny,
    /// d: the low 32 bits of the count of instructions.
    Clock32,
    /// d: the high 32 bits of the count of instructions.
    ClockHigh,
    /// d: the count of instructions.
    Clock64,
}

/// How `shfl` finds the source lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum ShuffleMode {
    /// `.up`
    Up,
    /// `.down`
    Down,
    /// `.bfly`
    Butterfly,
    /// `.idx`
    Index,
}

/// What an instruction does that nobody promises anything about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Undefined {
    /// The index of a `brx.idx` is not one of its table.
    BranchIndex,
}

impl Undefined {
    /// What is undefined, in words.
    pub(super) fn describe(extra: u32) -> &'static str {
        match extra {
            _ if extra == Self::BranchIndex as u32 => "a branch by an index beyond its table",
            _ => "an instruction without a meaning",
        }
    }
}

/// One decoded instruction.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Instruction {
    /// What to do.
    pub(super) op: Op,
    /// All ones when the instruction is executed where the guard is false.
    pub(super) negated: i16,
    /// Offset of the guard; of a slot of ones for instructions without one.
    pub(super) guard: u32,
    /// Offsets of the operands.
    pub(super) slots: [u32; 5],
    /// What the operation says it is.
    pub(super) extra: u32,
}

/// A load or store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    /// The state space, or `None` for a generic address.
    pub(super) space: Option<Space>,
    /// Bytes of one element.
    pub(super) bytes: u32,
    /// Number of elements.
    pub(super) count: u32,
    /// Whether a loaded element is extended by its sign.
    pub(super) signed: bool,
    /// How wide the value registers are.
    pub(super) value: Width,
    /// How wide the address register is.
    pub(super) address: Width,
    /// Bytes added to the address.
    pub(super) offset: i64,
    /// Whether the access is volatile, relaxed or stronger.
    pub(super) strong: bool,
}

/// What an atomic instruction does to the old value.
#[derive(Clone, Copy, Debug)]
pub(super) enum AtomicOperation {
    /// A function of the old value and the operands.
    Function(LaneFunction, u64),
    /// Floating-point addition.
    AddF32,
    /// Floating-point addition.
    AddF64,
    /// Exchange.
    Exchange,
    /// Compare and swap.
    CompareAndSwap,
    /// Add one, wrapping to zero past the operand.
    Increment,
    /// Subtract one, wrapping to the operand below zero.
    Decrement,
}

/// An atomic instruction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Atomic {
    /// Where and how wide.
    pub(super) access: Access,
    /// What it does.
    pub(super) operation: AtomicOperation,
}

/// A function of one lane and how wide its operands are.
#[derive(Clone, Copy, Debug)]
pub(super) struct LaneOperation {
    /// The function.
    pub(super) function: LaneFunction,
    /// Its last argument.
    pub(super) constant: u64,
    /// How wide the result is.
    pub(super) result: Width,
    /// How wide the operands are. The fourth, where there is one, is passed in the upper half of
    /// the third.
    pub(super) operands: [Option<Width>; 4],
}

/// Where an instruction comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Site {
    /// 0 for the kernel, otherwise one more than the index of the function.
    pub(super) code: u32,
    /// The index of the statement in its body.
    pub(super) statement: u32,
}

/// A slot that is filled before a warp starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Preset {
    /// The same bits in every lane.
    Constant(u64, Width),
    /// A special register.
    Special(Special),
}

/// A kernel that is ready to be launched.
#[derive(Clone, Debug)]
pub struct Program {
    /// The module without its entries, for the names of its variables.
    pub(super) module: Arc<Module>,
    pub(super) entry: Arc<Entry>,
    pub(super) code: Vec<Instruction>,
    /// For each instruction the statement that it comes from.
    pub(super) sites: Vec<Site>,
    pub(super) accesses: Vec<Access>,
    pub(super) atomics: Vec<Atomic>,
    pub(super) lanes: Vec<LaneOperation>,
    pub(super) copies: Vec<StagedCopy>,
    pub(super) matrices: Vec<Matrix>,
    pub(super) warpgroups: Vec<Warpgroup>,
    /// Offsets of the slots that are filled in advance.
    pub(super) presets: Vec<(Preset, u32)>,
    /// Offset and bytes of registers that may be read before they are written.
    pub(super) exposed: Vec<(u32, u32)>,
    /// Bytes of the slots that hold registers; the presets follow.
    pub(super) register_bytes: u32,
    /// Bytes of the whole file.
    pub(super) file_bytes: u32,
    /// Bytes of static shared memory.
    pub(super) shared_bytes: u32,
    /// Bytes of local memory of one thread.
    pub(super) local_bytes: u32,
    /// Offset and size of each parameter, and the size of the parameter block.
    pub(super) parameters: (Vec<(u32, u32)>, u32),
    /// Whether blocks may communicate, so that their order must be fixed.
    pub(super) communicates: bool,
}

impl Program {
    /// The name of the kernel.
    pub fn name(&self) -> &str {
        &self.entry.name
    }

    /// The kernel as it was decoded.
    pub fn entry(&self) -> &Entry {
        &self.entry
    }

    /// The kernel, or the function that a site is in.
    pub(super) fn code_of(&self, site: Site) -> &Entry {
        let function = site.code.checked_sub(1);
        let function = function.and_then(|index| self.module.functions.get(index as usize));
        function.map_or(&self.entry, |function| &function.code)
    }

    /// Offset and size in bytes of each parameter in the parameter block.
    pub fn parameters(&self) -> &[(u32, u32)] {
        &self.parameters.0
    }

    /// Size in bytes of the parameter block.
    pub fn parameter_bytes(&self) -> u32 {
        self.parameters.1
    }

    /// Bytes of static shared memory of a block.
    pub fn shared_bytes(&self) -> u32 {
        self.shared_bytes
    }

    /// Bytes of local memory of a thread.
    pub fn local_bytes(&self) -> u32 {
        self.local_bytes
    }

    /// Most registers of 32 bits that are in use at once: what a good compiler would need.
    pub fn registers(&self) -> u32 {
        (self.register_bytes / Width::Word.bytes()).max(1)
    }
}
