//! A PTX module as a value that can be printed, parsed, validated and executed.
//!
//! Names are resolved: registers, labels and symbols are indices, so that an executor needs no
//! string tables. The names are kept for printing and for messages.
//!
//! Not supported: textures, and debug information other than line numbers. The parser reports them.

use std::sync::Arc;

mod entry;
mod lines;
mod modifier;
mod operand;
mod types;

pub use entry::{
    BranchTable, Entry, Function, Limits, Linkage, Parameter, PointerAttribute, Prototype,
    RegisterDeclaration, Variable,
};
pub use lines::{LineTable, SourcePosition};
pub use modifier::{Modifier, Modifiers};
pub use operand::{
    Address, AddressBase, Immediate, LabelId, Operand, RegisterId, SpecialRegister, Symbol,
};
pub use types::{Type, TypeKind};

pub use crate::instructions::Opcode;
use crate::target::{IsaVersion, SmTarget};

/// A module: the content of one PTX image.
#[derive(Clone, Debug, PartialEq)]
pub struct Module {
    /// The `.version` line.
    pub isa: IsaVersion,
    /// The `.target` line.
    pub target: SmTarget,
    /// Variables outside of any entry, such as dynamic shared memory.
    pub variables: Vec<Variable>,
    /// The device functions.
    pub functions: Vec<Function>,
    /// The kernels.
    pub entries: Vec<Entry>,
    /// The source lines, if the text has line information. Not printed.
    pub lines: Arc<LineTable>,
}

impl Module {
    /// The entry called `name`.
    pub fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.name == name)
    }
}

/// A state space: where a variable lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StateSpace {
    /// Kernel parameters.
    Param,
    /// Device memory.
    Global,
    /// Memory shared by the threads of a block.
    Shared,
    /// Memory of one thread.
    Local,
    /// Constant memory.
    Const,
}

impl StateSpace {
    /// The space that the modifier names.
    pub const fn from_modifier(modifier: Modifier) -> Option<Self> {
        Some(match modifier {
            Modifier::Param | Modifier::ParamEntry | Modifier::ParamFunc => Self::Param,
            Modifier::Global => Self::Global,
            Modifier::Shared | Modifier::SharedCta | Modifier::SharedCluster => Self::Shared,
            Modifier::Local => Self::Local,
            Modifier::Const => Self::Const,
            _ => return None,
        })
    }

    /// The modifier that names the space.
    pub const fn modifier(self) -> Modifier {
        match self {
            Self::Param => Modifier::Param,
            Self::Global => Modifier::Global,
            Self::Shared => Modifier::Shared,
            Self::Local => Modifier::Local,
            Self::Const => Modifier::Const,
        }
    }
}

/// A statement in the body of an entry.
#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    /// `name:`
    Label(LabelId),
    /// An instruction.
    Instruction(Instruction),
}

/// The guard predicate of an instruction, `@%p1` or `@!%p1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Guard {
    /// The predicate register.
    pub predicate: RegisterId,
    /// Whether the instruction is executed if the predicate is false.
    pub negated: bool,
}

/// An instruction: `@guard opcode.modifiers.types operands;`
#[derive(Clone, Debug, PartialEq)]
pub struct Instruction {
    /// The guard predicate.
    pub guard: Option<Guard>,
    /// The operation.
    pub opcode: Opcode,
    /// The modifiers.
    pub modifiers: Modifiers,
    /// The types, in order: most instructions have one, `cvt` has destination and source, `bra`
    /// has none.
    pub types: Vec<Type>,
    /// The operands, destination first.
    pub operands: Vec<Operand>,
    /// The line of the text.
    pub line: SourceLine,
}

impl Instruction {
    /// The space that the instruction accesses, or `None` for generic addresses and for
    /// instructions without memory.
    pub fn space(&self) -> Option<StateSpace> {
        self.modifiers.iter().find_map(StateSpace::from_modifier)
    }

    /// Calls `visit` with every register, and with true if it is read or false if it is written. A
    /// guarded instruction may leave its destinations unchanged.
    pub fn visit_registers(&self, mut visit: impl FnMut(RegisterId, bool)) {
        if let Some(guard) = self.guard {
            visit(guard.predicate, true);
        }
        for (index, operand) in self.operands.iter().enumerate() {
            let read = index > 0 || !self.has_destination();
            operand.visit_registers(&mut |register| visit(register, read));
        }
        // Accumulators are read and written.
        if let (Opcode::Wgmma, Some(sums)) = (self.opcode, self.operands.first()) {
            sums.visit_registers(&mut |register| visit(register, false));
        }
    }

    /// As [`Self::visit_registers`], with mutable registers. A register that is read and written is
    /// visited once, as read.
    pub fn visit_registers_mut(&mut self, mut visit: impl FnMut(&mut RegisterId, bool)) {
        if let Some(guard) = &mut self.guard {
            visit(&mut guard.predicate, true);
        }
        let writes = self.has_destination();
        for (index, operand) in self.operands.iter_mut().enumerate() {
            let read = index > 0 || !writes;
            operand.visit_registers_mut(&mut |register| visit(register, read));
        }
    }

    /// Whether the first operand is a destination.
    pub fn has_destination(&self) -> bool {
        match self.opcode {
            Opcode::Mbarrier => {
                use Modifier::{CompleteTx, ExpectTx, Init, Inval};
                self.modifiers.first_of(&[Init, Inval, ExpectTx, CompleteTx]).is_none()
            }
            Opcode::Wmma => !self.modifiers.has(Modifier::StoreD),
            opcode => opcode.has_destination(),
        }
    }

    /// Whether the instruction is scalar, without a vector modifier such as `.v2`.
    pub fn is_scalar(&self) -> bool {
        self.modifiers.first_of(&[Modifier::V2, Modifier::V4, Modifier::V8]).is_none()
    }

    /// The number of dimensions of a modifier such as `.2d`.
    pub fn tensor_rank(&self) -> Option<usize> {
        use Modifier::{Dim1, Dim2, Dim3, Dim4, Dim5};
        let ranks = [Dim1, Dim2, Dim3, Dim4, Dim5];
        ranks.iter().position(|&rank| self.modifiers.has(rank)).map(|index| index + 1)
    }

    /// The first type.
    pub fn ty(&self) -> Option<Type> {
        self.types.first().copied()
    }
}

/// The line that an instruction was parsed from, counted from 1; 0 if the builder created it.
///
/// All lines compare as equal: the position of an instruction is not part of its meaning.
#[derive(Clone, Copy, Debug, Default, Eq)]
pub struct SourceLine(pub u32);

impl PartialEq for SourceLine {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
