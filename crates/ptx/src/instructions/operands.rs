//! Matching operands against what a form says of them.

use super::check::Names;
use super::form::{Shape, Ty};
use crate::ast::{
    Address, AddressBase, Immediate, Instruction, Modifier, Operand, RegisterId, Space, Symbol,
    Type, TypeKind,
};

/// Checks operands of one instruction. Failures say what was expected.
pub(super) struct Checker<'a> {
    pub(super) instruction: &'a Instruction,
    pub(super) names: &'a Names<'a>,
}

impl Checker<'_> {
    /// Whether `operand` is what `shape` says; if not, what it says.
    pub(super) fn check(&self, shape: Shape, operand: &Operand) -> Result<(), String> {
        match shape {
            Shape::Destination(ty) => self.register(operand, self.resolve(ty), false),
            Shape::WideDestination(ty) => self.register(operand, self.resolve(ty), true),
            Shape::DestinationOrSink(ty) => match operand {
                Operand::Sink => Ok(()),
                _ => self.register(operand, self.resolve(ty), false),
            },
            Shape::DestinationAndPredicate(ty) => self.pair(operand, self.resolve(ty)),
            Shape::Loaded => {
                self.memory_value(operand, &|one| self.register(one, self.resolve(Ty::First), true))
            }
            Shape::Stored => {
                self.memory_value(operand, &|one| self.value(one, self.resolve(Ty::First), true))
            }
            Shape::Source(ty) => self.value(operand, self.resolve(ty), false),
            Shape::WideSource(ty) => self.value(operand, self.resolve(ty), true),
            Shape::Predicate => match operand {
                Operand::NotPredicate(register) => self.typed(*register, Type::Pred, false),
                _ => self.value(operand, Type::Pred, false),
            },
            Shape::Anything => self.anything(operand),
            Shape::Unpacked => self.packed(operand, true),
            Shape::Constant => self.constant(operand),
            Shape::Memory => self.memory(operand, self.instruction.space()),
            Shape::MemoryIn(space) => self.memory(operand, Some(space)),
            Shape::OneOf(choices) => match operand {
                Operand::Immediate(Immediate::Integer(value)) if choices.contains(value) => Ok(()),
                _ => Err(format!("one of the constants {choices:?}")),
            },
            Shape::Integer => match operand {
                Operand::Immediate(Immediate::Integer(_)) => Ok(()),
                _ => Err("an integer constant".to_owned()),
            },
            Shape::PredicateRegister => match operand {
                Operand::NotPredicate(register) => self.typed(*register, Type::Pred, false),
                _ => self.register(operand, Type::Pred, false),
            },
            Shape::Register(ty) => self.register(operand, ty, false),
            Shape::UpToPrevious(ty) => self.up_to_previous(operand, ty),
            Shape::FragmentDestination(ty, count) => self.fragment(operand, count, &|one| {
                if *one == Operand::Sink { Ok(()) } else { self.element(one, ty) }
            }),
            Shape::Fragment(ty, count) => self.fragment(operand, count, &|one| match one {
                Operand::Immediate(_) => self.value(one, untyped(ty), false),
                _ => self.element(one, ty),
            }),
            Shape::AddressValue => match operand {
                Operand::Symbol(symbol, _) => self.symbol(*symbol),
                _ => self.register(operand, self.resolve(Ty::First), false),
            },
            Shape::Target => match operand {
                Operand::Label(_) => Ok(()),
                _ => Err("a label".to_owned()),
            },
        }
    }

    fn resolve(&self, ty: Ty) -> Type {
        let nth = |index: usize| self.instruction.types.get(index).copied().unwrap_or(Type::B32);
        match ty {
            Ty::First => nth(0),
            Ty::Second => nth(1),
            Ty::Is(ty) => ty,
            Ty::Double => match nth(0) {
                Type::U16 => Type::U32,
                Type::S16 => Type::S32,
                Type::S32 => Type::S64,
                _ => Type::U64,
            },
        }
    }

    fn register(&self, operand: &Operand, ty: Type, wide: bool) -> Result<(), String> {
        match operand {
            Operand::Register(register) => self.typed(*register, ty, wide),
            _ => Err(format!("a register for .{ty}")),
        }
    }

    fn typed(&self, register: RegisterId, ty: Type, wide: bool) -> Result<(), String> {
        let fits = match self.names.registers.get(register.0 as usize) {
            Some(&register) => holds(register, ty, wide),
            None => false,
        };
        if fits { Ok(()) } else { Err(format!("a register for .{ty}")) }
    }

    fn pair(&self, operand: &Operand, ty: Type) -> Result<(), String> {
        match operand {
            Operand::Pair(first, second) => {
                self.typed(*first, ty, false)?;
                self.typed(*second, Type::Pred, false)
            }
            _ => self.register(operand, ty, false),
        }
    }

    fn value(&self, operand: &Operand, ty: Type, wide: bool) -> Result<(), String> {
        match operand {
            Operand::Immediate(immediate) if fits(*immediate, ty) => Ok(()),
            Operand::Register(register) => self.typed(*register, ty, wide),
            _ => Err(format!("a register or a constant for .{ty}")),
        }
    }

    fn constant(&self, operand: &Operand) -> Result<(), String> {
        match operand {
            Operand::Immediate(Immediate::Integer(0..=255)) => Ok(()),
            _ => Err("a constant from 0 to 255".to_owned()),
        }
    }

    /// One value, or as many as `.v2` or `.v4` says.
    fn memory_value(
        &self,
        operand: &Operand,
        check: &dyn Fn(&Operand) -> Result<(), String>,
    ) -> Result<(), String> {
        let count = match self.instruction.modifiers.first_of(&[Modifier::V2, Modifier::V4]) {
            None => return check(operand),
            Some(Modifier::V2) => 2,
            Some(_) => 4,
        };
        if self.resolve(Ty::First).size() * count > 16 {
            return Err("a vector of at most 16 bytes".to_owned());
        }
        match operand {
            Operand::Vector(list) if list.len() == count as usize => {
                list.iter().try_for_each(check)
            }
            _ => Err(format!("a vector of {count}")),
        }
    }

    fn anything(&self, operand: &Operand) -> Result<(), String> {
        let ty = self.resolve(Ty::First);
        match operand {
            Operand::Special(special) if special.ty().size() == ty.size() && !ty.is_float() => {
                Ok(())
            }
            Operand::Symbol(symbol, _) if !ty.is_float() && ty.size() >= 4 => self.symbol(*symbol),
            Operand::Vector(_) => self.packed(operand, false),
            _ => self.value(operand, ty, false),
        }
    }

    /// A vector of registers that together are as wide as the untyped first type.
    fn packed(&self, operand: &Operand, written: bool) -> Result<(), String> {
        let ty = self.resolve(Ty::First);
        let error = || Err(format!("a vector of registers that fill .{ty}"));
        let (Operand::Vector(list), TypeKind::Untyped) = (operand, ty.kind()) else {
            return error();
        };
        let part = match (list.len(), ty) {
            (2, Type::B64) => Type::B32,
            (2, Type::B32) | (4, Type::B64) => Type::B16,
            _ => return error(),
        };
        list.iter().try_for_each(|one| match one {
            Operand::Sink if written => Ok(()),
            _ => self.register(one, part, false),
        })
    }

    fn symbol(&self, symbol: Symbol) -> Result<(), String> {
        self.symbol_in(symbol, self.instruction.space())
    }

    fn symbol_in(&self, symbol: Symbol, wanted: Option<Space>) -> Result<(), String> {
        match ((self.names.space)(symbol), wanted) {
            (None, _) => Err("a variable or a parameter".to_owned()),
            (Some(found), Some(wanted)) if found != wanted => {
                Err(format!("a name in .{wanted}; this one is in .{found}"))
            }
            _ => Ok(()),
        }
    }

    /// A value that is no more than the constant in front of it.
    fn up_to_previous(&self, operand: &Operand, ty: Type) -> Result<(), String> {
        let at = self.instruction.operands.iter().position(|other| std::ptr::eq(other, operand));
        let before = at.and_then(|at| self.instruction.operands.get(at.checked_sub(1)?));
        match (operand, before) {
            (
                Operand::Immediate(Immediate::Integer(value)),
                Some(Operand::Immediate(Immediate::Integer(most))),
            ) if !(0..=*most).contains(value) => Err(format!("a constant from 0 to {most}")),
            _ => self.value(operand, ty, false),
        }
    }

    fn fragment(
        &self,
        operand: &Operand,
        count: usize,
        check: &dyn Fn(&Operand) -> Result<(), String>,
    ) -> Result<(), String> {
        match operand {
            Operand::Vector(list) if list.len() == count => list.iter().try_for_each(check),
            _ => Err(format!("a vector of {count}")),
        }
    }

    /// A register of a fragment. Those that hold packed elements have no type of their own.
    fn element(&self, operand: &Operand, ty: Type) -> Result<(), String> {
        self.register(operand, untyped(ty), false)?;
        let Operand::Register(register) = operand else { return Ok(()) };
        let declared = self.names.registers.get(register.0 as usize);
        if untyped(ty) == ty || declared == Some(&Type::B32) {
            Ok(())
        } else {
            Err("a register of type .b32".to_owned())
        }
    }

    fn memory(&self, operand: &Operand, space: Option<Space>) -> Result<(), String> {
        let Operand::Address(Address { base, offset }) = operand else {
            return Err("an [address]".to_owned());
        };
        if i32::try_from(*offset).is_err() {
            return Err("an offset of 32 bits".to_owned());
        }
        match base {
            AddressBase::Symbol(symbol) => self.symbol_in(*symbol, space),
            AddressBase::Absolute if space == Some(Space::Local) => Ok(()),
            AddressBase::Absolute => Err("a register or a name as base".to_owned()),
            AddressBase::Register(register) => {
                let near = matches!(space, Some(Space::Shared | Space::Local | Space::Param));
                let narrow = near && self.typed(*register, Type::U32, false).is_ok();
                if narrow { Ok(()) } else { self.typed(*register, Type::U64, false) }
            }
        }
    }

    /// The operand, for a message.
    pub(super) fn describe(&self, operand: &Operand) -> String {
        match operand {
            Operand::Register(register) => match self.names.registers.get(register.0 as usize) {
                Some(ty) => format!("a register of type .{ty}"),
                None => "an undeclared register".to_owned(),
            },
            Operand::NotPredicate(_) => "a negated predicate".to_owned(),
            Operand::Pair(..) => "two registers".to_owned(),
            Operand::Special(special) => format!("the special register {special}"),
            Operand::Immediate(immediate) => format!("the constant {immediate}"),
            Operand::Symbol(..) => "the name of a variable".to_owned(),
            Operand::Address(_) => "an address".to_owned(),
            Operand::Vector(list) => format!("a vector of {}", list.len()),
            Operand::Label(_) => "a label".to_owned(),
            Operand::Sink => "`_`".to_owned(),
        }
    }
}

/// The type of a register that holds elements of a type: those of 32 bits that are packed, or that
/// have no registers of their own, have none.
fn untyped(ty: Type) -> Type {
    match ty {
        Type::F16x2 | Type::Bf16x2 | Type::Tf32 => Type::B32,
        other => other,
    }
}

/// Whether a register may hold an operand of type `ty`: the sizes are the same, or the register is
/// wider where that is allowed, and float and integer do not meet.
fn holds(register: Type, ty: Type, wide: bool) -> bool {
    let (a, b) = (register.kind(), ty.kind());
    if a == TypeKind::Predicate || b == TypeKind::Predicate {
        return a == b;
    }
    let same_kind =
        a == TypeKind::Untyped || b == TypeKind::Untyped || register.is_float() == ty.is_float();
    let wider = wide && !ty.is_float() && register.size() > ty.size();
    same_kind && (register.size() == ty.size() || wider)
}

/// Whether a constant is one of `ty`.
fn fits(immediate: Immediate, ty: Type) -> bool {
    match (immediate, ty.kind()) {
        (Immediate::Integer(_), TypeKind::Predicate) => true,
        (Immediate::Integer(_), TypeKind::Float) => false,
        (Immediate::Integer(value), _) => {
            let bits = ty.bits();
            bits == 64 || (-(1i64 << (bits - 1))..1i64 << bits).contains(&value)
        }
        (Immediate::F32(_), TypeKind::Float | TypeKind::Untyped) => ty.bits() == 32,
        (Immediate::F64(_), TypeKind::Float | TypeKind::Untyped) => ty.bits() == 64,
        _ => false,
    }
}
