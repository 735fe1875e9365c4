//! A kernel in the form that the interpreter runs.
//!
//! The registers of a warp are one file of bytes. A 32-bit register of all 32 lanes is a slot of
//! 128 bytes, a 64-bit register one of 256, a predicate one of 4 with a bit for each lane.
//! Constants and special registers are slots that are filled before the warp starts. So every
//! operand is the offset of a slot, and the interpreter never checks the kind of an operand.

use std::sync::Arc;

use retrograph_ptx::ast::{Entry, Module, SpecialRegister, StateSpace};

use super::async_copy::AsyncCopy;
use super::bulk::BulkInstruction;
use super::call_stack::{Calls, STACK_BYTES};
use super::lane_function::LaneFunction;
use super::matrix::Matrix;
use super::operation::Instruction;
use super::registers::Offset;
use super::warpgroup::Warpgroup;

/// The number of the cluster barrier, distinct from all barriers of a block.
pub(super) const CLUSTER_BARRIER: u32 = u32::MAX;

/// The number of the grid barrier.
pub(super) const GRID_BARRIER: u32 = CLUSTER_BARRIER - 1;

/// The result of `cudaCGGetIntrinsicHandle` for the grid of a cooperative launch. On hardware it is
/// an opaque address.
pub(super) const GRID_HANDLE: u64 = 0x6772_6964;

/// Lanes of a warp.
pub(super) const LANES: usize = 32;

/// The width of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Width {
    /// One bit for each lane.
    Predicate,
    /// 32 bits for each lane; 16-bit values are in the lower half; the upper half is undefined.
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

/// A load or store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    /// The state space, or `None` for a generic address.
    pub(super) space: Option<StateSpace>,
    /// Bytes of one element.
    pub(super) bytes: u32,
    /// Number of elements.
    pub(super) count: u32,
    /// The required alignment, if it is above the bytes of all elements. The first part of a vector
    /// that is split has the alignment of the whole vector.
    pub(super) align: u32,
    /// Whether a loaded element is sign-extended.
    pub(super) signed: bool,
    /// The width of the value registers.
    pub(super) value: Width,
    /// The width of the address register.
    pub(super) address: Width,
    /// Bytes added to the address.
    pub(super) offset: i64,
    /// Whether the access is volatile, relaxed or stronger.
    pub(super) strong: bool,
    /// Whether it can reach the shared memory of other blocks of the cluster: `.shared::cluster`
    /// and generic addresses.
    pub(super) reaches_cluster: bool,
}

impl Access {
    /// One element of `bytes` at a generic address.
    pub(super) const fn generic(bytes: u32) -> Self {
        Self {
            space: None,
            bytes,
            count: 1,
            align: 0,
            signed: false,
            value: Width::Double,
            address: Width::Double,
            offset: 0,
            strong: false,
            reaches_cluster: false,
        }
    }
}

/// The operation of an atomic instruction.
#[derive(Clone, Copy, Debug)]
pub(super) enum AtomicOperation {
    /// A function of the old value and the operand.
    Function(LaneFunction),
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
    /// The memory access.
    pub(super) access: Access,
    /// The operation.
    pub(super) operation: AtomicOperation,
}

/// A per-lane function and the widths of its registers.
#[derive(Clone, Copy, Debug)]
pub(super) struct LaneOperation {
    /// The function.
    pub(super) function: LaneFunction,
    /// Width of the result.
    pub(super) result: Width,
    /// Widths of the operands; arbitrary for absent operands.
    pub(super) operands: [Width; 4],
}

/// The statement that an instruction comes from.
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
    /// An address in the shared memory of the block.
    Shared(u64, Width),
    /// A special register.
    Special(SpecialRegister),
    /// The address of the running function's frame, which calls and returns write.
    FramePointer,
    /// The bytes of the frame of a region while decoding; afterwards it is a constant.
    FrameEnd(u32),
}

/// A decoded kernel, ready to launch.
#[derive(Clone, Debug)]
pub struct Program {
    /// The module without its entries, for the names of its variables.
    pub(super) module: Arc<Module>,
    pub(super) entry: Arc<Entry>,
    pub(super) code: Vec<Instruction>,
    /// The statement of each instruction.
    pub(super) sites: Vec<Site>,
    pub(super) accesses: Vec<Access>,
    pub(super) atomics: Vec<Atomic>,
    pub(super) lanes: Vec<LaneOperation>,
    pub(super) copies: Vec<AsyncCopy>,
    pub(super) matrices: Vec<Matrix>,
    pub(super) warpgroups: Vec<Warpgroup>,
    pub(super) bulk: Vec<BulkInstruction>,
    /// Offsets of the preset slots.
    pub(super) presets: Vec<(Preset, Offset)>,
    /// Offset and size of registers that may be read before they are written.
    pub(super) exposed: Vec<(Offset, u32)>,
    /// Bytes of the slots that hold registers; the presets follow.
    pub(super) register_bytes: u32,
    /// Bytes of the whole file.
    pub(super) file_bytes: u32,
    /// Bytes of static shared memory.
    pub(super) shared_bytes: u32,
    /// Bytes of local memory of one thread, without the stack.
    pub(super) local_bytes: u32,
    /// Whether the kernel allocates memory.
    pub(super) uses_heap: bool,
    /// Whether the kernel reads the address of the workspace of cooperative grids.
    pub(super) uses_workspace: bool,
    /// Functions with frames.
    pub(super) calls: Option<Box<Calls>>,
    /// Offset and size of each parameter, and the size of the parameter block.
    pub(super) parameters: (Vec<(u32, u32)>, u32),
    /// Whether blocks may communicate, which requires a fixed order.
    pub(super) communicates: bool,
}

impl Program {
    /// The name of the kernel.
    pub fn name(&self) -> &str {
        &self.entry.name
    }

    /// The decoded entry.
    pub fn entry(&self) -> &Entry {
        &self.entry
    }

    /// The kernel or function that contains a site.
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

    /// Bytes of local memory of a thread with its stack.
    pub(super) fn all_local_bytes(&self) -> u32 {
        self.local_bytes + if self.calls.is_some() { STACK_BYTES } else { 0 }
    }

    /// Bytes of local memory of a thread, without the stack.
    pub fn local_bytes(&self) -> u32 {
        self.local_bytes
    }

    /// Maximum number of live 32-bit registers: an estimate of what a good compiler allocates.
    pub fn registers(&self) -> u32 {
        (self.register_bytes / Width::Word.bytes()).max(1)
    }
}
