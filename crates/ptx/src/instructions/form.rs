//! Forms: the rows of the instruction table.

use std::fmt::{self, Display, Formatter};

use super::needs::{BASE, Requirements};
use crate::ast::{Modifier, StateSpace, Type};
use crate::target::IsaVersion;

/// One form of an instruction: the modifiers, types and operands that go together.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// The modifiers. Each slot is filled at most once.
    pub slots: &'static [ModifierChoice],
    /// For each type position, the allowed types.
    pub types: &'static [&'static [Type]],
    /// The operands.
    pub operands: &'static [Shape],
    /// The lowest PTX ISA version.
    pub isa: IsaVersion,
    /// The lowest SM target, as its number.
    pub sm: u32,
    /// Whether only that target has it, with the letter `a`.
    pub arch_specific: bool,
}

/// A slot for one modifier out of several.
#[derive(Clone, Copy, Debug)]
pub struct ModifierChoice {
    /// The allowed modifiers.
    pub choices: &'static [Modifier],
    /// Whether one of them is required.
    pub required: bool,
}

/// The type of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ty {
    /// The first type of the instruction.
    First,
    /// The second type of the instruction.
    Second,
    /// Twice as wide as the first type.
    Double,
    /// Always this type.
    Is(Type),
}

/// The kinds of operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A register that is written.
    Destination(Ty),
    /// A register that is written and may be wider than the type.
    WideDestination(Ty),
    /// A register that is written, or `_`.
    DestinationOrSink(Ty),
    /// A register that is written, and an optional predicate, `%r1|%p1`.
    DestinationAndPredicate(Ty),
    /// A register that is written, or `_`, and a required predicate, `%r1|%p1`.
    SinkAndPredicate(Ty),
    /// Only `_`.
    Sink,
    /// One or two predicates that are written; each may be `_`.
    Predicates,
    /// A register, or a vector of the length of `.v2` or `.v4`, written by a load. Elements of a
    /// vector may be `_`.
    Loaded,
    /// The result of an atomic operation: as [`Self::Loaded`], or `_`.
    LoadedOrSink,
    /// A register or constant, or a vector of them, written to memory by a store.
    Stored,
    /// A register or a constant.
    Source(Ty),
    /// A register, which may be wider than the type, or a constant.
    WideSource(Ty),
    /// A predicate that may be negated, `!%p1`.
    Predicate,
    /// The source of `mov`: also special registers, addresses of variables and vectors.
    Anything,
    /// A vector of registers that `mov` unpacks into.
    Unpacked,
    /// A constant.
    Constant,
    /// `[address]`
    Memory,
    /// `[address]` of an operand that must be a register or a variable, for `cvta`.
    AddressValue,
    /// `[address]` in this space, regardless of the modifiers.
    MemoryIn(StateSpace),
    /// `[map, {x, y}]`: a box of a tensor, with the number of coordinates of a modifier such as
    /// `.2d`.
    TensorCoordinates,
    /// One of these integer constants.
    OneOf(&'static [i64]),
    /// An integer constant.
    Integer,
    /// An integer constant that is not negative.
    Count,
    /// A register of this type, or a constant from 0 to the value of the previous operand.
    UpToPrevious(Type),
    /// A register of 32 bits, or a constant from 0 to this.
    Within(i64),
    /// Threads at a barrier: a register, or a constant that is a multiple of 32.
    Threads,
    /// A predicate register that may be negated.
    PredicateRegister,
    /// A register that is read.
    Register(Type),
    /// A vector of this many registers that are written; each may be `_`.
    FragmentDestination(Type, usize),
    /// A vector of this many registers or constants.
    Fragment(Type, usize),
    /// A vector of this many registers that are read.
    Registers(Type, usize),
    /// A vector of this many registers that are read and written.
    Accumulators(Type, usize),
    /// A label of the same entry.
    Target,
    /// A table of labels of the same entry.
    Targets,
    /// A function that is called.
    Callee,
    /// A register with the address of a called function.
    CalledPointer,
    /// A signature that the entry declares.
    Prototype,
    /// The results of a call, in parentheses.
    Results,
    /// The arguments of a call, in parentheses.
    Arguments,
}

impl Shape {
    /// Whether the instruction only writes the operand.
    pub const fn is_written(&self) -> bool {
        matches!(
            self,
            Self::Destination(_)
                | Self::WideDestination(_)
                | Self::DestinationOrSink(_)
                | Self::Sink
                | Self::DestinationAndPredicate(_)
                | Self::SinkAndPredicate(_)
                | Self::Predicates
                | Self::Loaded
                | Self::LoadedOrSink
                | Self::Unpacked
                | Self::FragmentDestination(..)
        )
    }
}

impl Form {
    /// A form that every supported target and version has.
    pub(super) const fn new(
        slots: &'static [ModifierChoice],
        types: &'static [&'static [Type]],
        operands: &'static [Shape],
    ) -> Self {
        Self { slots, types, operands, isa: BASE, sm: 0, arch_specific: false }
    }

    /// The form, from this version and SM target on.
    pub(super) const fn since(self, isa: IsaVersion, sm: u32) -> Self {
        Self { isa, sm, ..self }
    }

    /// The form, only on its lowest SM target, with the letter `a`.
    pub(super) const fn exactly(self) -> Self {
        Self { arch_specific: true, ..self }
    }

    /// The requirements of the form.
    pub(crate) const fn needs(&self) -> Requirements {
        Requirements { isa: self.isa, sm: self.sm, arch_specific: self.arch_specific }
    }

    /// Whether `modifier` may be written.
    pub(crate) fn has_slot_for(&self, modifier: Modifier) -> bool {
        self.slots.iter().any(|slot| slot.choices.contains(&modifier))
    }
}

/// A slot that must be filled.
pub(super) const fn one(choices: &'static [Modifier]) -> ModifierChoice {
    ModifierChoice { choices, required: true }
}

/// A slot that may be filled.
pub(super) const fn maybe(choices: &'static [Modifier]) -> ModifierChoice {
    ModifierChoice { choices, required: false }
}

/// The form as a line of a manual, without the opcode: `{.rn|.rz}{.ftz}.f32 d, a, b`.
impl Display for Form {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for slot in self.slots {
            let words: Vec<String> = slot.choices.iter().map(|word| format!(".{word}")).collect();
            let words = words.join("|");
            match (slot.required, slot.choices.len()) {
                (true, 1) => write!(f, "{words}")?,
                (true, _) => write!(f, "({words})")?,
                (false, _) => write!(f, "{{{words}}}")?,
            }
        }
        for types in self.types {
            let words: Vec<String> = types.iter().map(|ty| format!(".{ty}")).collect();
            let words = words.join("|");
            if types.len() == 1 { write!(f, "{words}")? } else { write!(f, "({words})")? }
        }
        for (index, shape) in self.operands.iter().enumerate() {
            write!(f, "{}{shape}", if index == 0 { " " } else { ", " })?;
        }
        Ok(())
    }
}

impl Display for Shape {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Destination(_) | Self::WideDestination(_) => "register",
            Self::DestinationOrSink(_) => "register or _",
            Self::Sink => "_",
            Self::DestinationAndPredicate(_) => "register{|predicate}",
            Self::SinkAndPredicate(_) => "(register or _)|predicate",
            Self::Predicates => "predicate{|predicate}",
            Self::Loaded => "register or {registers}",
            Self::LoadedOrSink => "register, {registers} or _",
            Self::Stored => "value or {values}",
            Self::Source(_) | Self::WideSource(_) => "value",
            Self::Predicate | Self::PredicateRegister => "{!}predicate",
            Self::Anything => "value, special register, variable or {registers}",
            Self::Unpacked => "{registers}",
            Self::Constant => "constant",
            Self::Memory | Self::MemoryIn(_) => "[address]",
            Self::TensorCoordinates => "[tensor map, {coordinates}]",
            Self::OneOf(_) | Self::Integer | Self::Count => "constant",
            Self::UpToPrevious(_) | Self::Within(_) | Self::Threads => "value",
            Self::Register(_) => "register",
            Self::FragmentDestination(..) | Self::Registers(..) | Self::Accumulators(..) => {
                "{registers}"
            }
            Self::Fragment(..) => "{values}",
            Self::AddressValue => "register or variable",
            Self::Target => "label",
            Self::Targets => "table of labels",
            Self::Callee => "function",
            Self::CalledPointer => "register",
            Self::Prototype => "prototype",
            Self::Results => "(results)",
            Self::Arguments => "(arguments)",
        })
    }
}
