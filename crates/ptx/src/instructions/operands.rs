//! Checks of operands against a form.

mod call;
mod fit;
mod memory;

use self::fit::{fits, holds, reads, untyped};
use super::check::Names;
use super::form::{Shape, Ty};
use crate::ast::{Immediate, Instruction, Operand, RegisterId, Type, TypeKind};

/// Checks operands of one instruction. Errors name the expected operand.
pub(super) struct Checker<'a> {
    pub(super) instruction: &'a Instruction,
    pub(super) names: &'a Names<'a>,
}

impl Checker<'_> {
    /// Checks `operand` against `shape`. The error describes the shape.
    pub(super) fn check(&self, shape: Shape, operand: &Operand) -> Result<(), String> {
        match shape {
            Shape::Destination(ty) => self.register(operand, self.resolve(ty), false),
            Shape::WideDestination(ty) => {
                self.register(operand, self.resolve(ty), self.may_be_wide())
            }
            Shape::DestinationOrSink(ty) => match operand {
                Operand::Sink => Ok(()),
                _ => self.register(operand, self.resolve(ty), false),
            },
            Shape::Sink => match operand {
                Operand::Sink => Ok(()),
                _ => Err("`_`".to_owned()),
            },
            Shape::DestinationAndPredicate(ty) => self.pair(operand, self.resolve(ty)),
            Shape::SinkAndPredicate(ty) => match operand {
                Operand::Pair(None, Some(second)) => self.typed(*second, Type::Pred, false),
                Operand::Pair(Some(_), Some(_)) => self.pair(operand, self.resolve(ty)),
                _ => Err("a register or `_`, and a predicate after `|`".to_owned()),
            },
            Shape::Predicates => match operand {
                Operand::Sink => Ok(()),
                Operand::Pair(first, second) => [first, second]
                    .into_iter()
                    .flatten()
                    .try_for_each(|register| self.typed(*register, Type::Pred, false)),
                _ => self.register(operand, Type::Pred, false),
            },
            Shape::Loaded => self.memory_value(operand, &|one| self.loaded(one)),
            Shape::LoadedOrSink => match operand {
                Operand::Sink => Ok(()),
                _ => self.memory_value(operand, &|one| self.loaded(one)),
            },
            Shape::Stored => self.memory_value(operand, &|one| self.stored(one)),
            Shape::Source(ty) => self.value(operand, self.resolve(ty), false),
            Shape::WideSource(ty) => self.value(operand, self.resolve(ty), self.may_be_wide()),
            Shape::Predicate => match operand {
                Operand::NotPredicate(register) => self.typed(*register, Type::Pred, false),
                _ => self.value(operand, Type::Pred, false),
            },
            Shape::Anything => self.anything(operand),
            Shape::Unpacked => self.packed(operand, true),
            Shape::Constant => self.constant(operand),
            Shape::Memory => self.memory(operand, self.instruction.space()),
            Shape::MemoryIn(space) => self.memory(operand, Some(space)),
            Shape::TensorCoordinates => self.tensor_coordinates(operand),
            Shape::OneOf(choices) => match operand {
                Operand::Immediate(Immediate::Integer(value)) if choices.contains(value) => Ok(()),
                _ => Err(format!("one of the constants {choices:?}")),
            },
            Shape::Integer => match operand {
                Operand::Immediate(Immediate::Integer(_)) => Ok(()),
                _ => Err("an integer constant".to_owned()),
            },
            Shape::Count => match operand {
                Operand::Immediate(Immediate::Integer(0..)) => Ok(()),
                _ => Err("an integer constant that is not negative".to_owned()),
            },
            Shape::Within(most) => match operand {
                Operand::Immediate(Immediate::Integer(value)) if !(0..=most).contains(value) => {
                    Err(format!("a constant from 0 to {most}"))
                }
                _ => self.value(operand, Type::U32, false),
            },
            Shape::Threads => match operand {
                Operand::Immediate(Immediate::Integer(count)) if count % 32 != 0 => {
                    Err("a multiple of 32".to_owned())
                }
                _ => self.value(operand, Type::U32, false),
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
            Shape::Registers(ty, count) | Shape::Accumulators(ty, count) => {
                self.fragment(operand, count, &|one| self.element(one, ty))
            }
            Shape::Fragment(ty, count) => self.fragment(operand, count, &|one| match one {
                Operand::Immediate(_) => self.value(one, untyped(ty), false),
                _ => self.element(one, ty),
            }),
            Shape::AddressValue => match operand {
                Operand::Symbol(symbol, _) => self.symbol(*symbol),
                _ => self.value(operand, self.resolve(Ty::First), false),
            },
            Shape::Target => match operand {
                Operand::Label(_) => Ok(()),
                _ => Err("a label".to_owned()),
            },
            Shape::Targets => match operand {
                Operand::Targets(_) => Ok(()),
                _ => Err("the name of a table of labels".to_owned()),
            },
            Shape::Callee => match operand {
                Operand::Function(_) => self.call_lists(&self.signature()?),
                _ => Err("the name of a function".to_owned()),
            },
            Shape::CalledPointer => self
                .register(operand, Type::U32, false)
                .or_else(|_| self.register(operand, Type::U64, false)),
            Shape::Prototype => match operand {
                Operand::Prototype(_) => self.call_lists(&self.signature()?),
                _ => Err("the name of a prototype".to_owned()),
            },
            Shape::Results => self.call_list(operand, self.signature()?.results, true),
            Shape::Arguments => self.call_list(operand, self.signature()?.parameters, false),
        }
    }

    /// Whether registers may be wider than the type; false for tensor-core types.
    fn may_be_wide(&self) -> bool {
        !self.instruction.types.iter().any(|ty| matches!(ty, Type::Bf16 | Type::Tf32))
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
                let first = first.map_or_else(|| Err(format!("a register for .{ty}")), Ok)?;
                self.typed(first, ty, false)?;
                second.map_or(Ok(()), |second| self.typed(second, Type::Pred, false))
            }
            _ => self.register(operand, ty, false),
        }
    }

    fn value(&self, operand: &Operand, ty: Type, wide: bool) -> Result<(), String> {
        match operand {
            Operand::Immediate(immediate) if fits(*immediate, ty) => Ok(()),
            Operand::Register(register) => self.typed(*register, ty, wide),
            Operand::NotPredicate(register) if ty == Type::Pred => self.typed(*register, ty, false),
            _ => Err(format!("a register or a constant for .{ty}")),
        }
    }

    fn constant(&self, operand: &Operand) -> Result<(), String> {
        match operand {
            Operand::Immediate(Immediate::Integer(0..=255)) => Ok(()),
            _ => Err("a constant from 0 to 255".to_owned()),
        }
    }

    fn anything(&self, operand: &Operand) -> Result<(), String> {
        let ty = self.resolve(Ty::First);
        match operand {
            Operand::Special(special) if reads(*special, ty) => Ok(()),
            Operand::Symbol(symbol, _) if !ty.is_float() && ty.size() >= 4 => self.symbol(*symbol),
            Operand::Function(_) if !ty.is_float() && ty != Type::Pred => Ok(()),
            Operand::Vector(_) => self.packed(operand, false),
            _ => self.value(operand, ty, false),
        }
    }

    /// A vector of registers with the total width of the untyped first type.
    fn packed(&self, operand: &Operand, written: bool) -> Result<(), String> {
        let ty = self.resolve(Ty::First);
        let error = || Err(format!("a vector of registers that fill .{ty}"));
        let (Operand::Vector(list), TypeKind::Untyped) = (operand, ty.kind()) else {
            return error();
        };
        let part = match (list.len(), ty) {
            (2, Type::B64) => Type::B32,
            (2, Type::B32) | (4, Type::B64) => Type::B16,
            (2, Type::B16) | (4, Type::B32) => Type::B8,
            (2, Type::B128) => Type::B64,
            _ => return error(),
        };
        if list.iter().all(|one| !matches!(one, Operand::Register(_))) {
            return Err("a vector with a register, which says how long the parts are".to_owned());
        }
        list.iter().try_for_each(|one| match one {
            Operand::Sink if written => Ok(()),
            _ if written => self.register(one, part, false),
            _ => self.value(one, part, false),
        })
    }

    fn tensor_coordinates(&self, operand: &Operand) -> Result<(), String> {
        let count = self.instruction.tensor_rank().unwrap_or(0);
        match operand {
            Operand::TensorCoordinates(map, coordinates) if coordinates.len() == count => {
                self.typed(*map, Type::U64, false)?;
                coordinates.iter().try_for_each(|one| self.value(one, Type::S32, false))
            }
            _ => Err(format!("a tensor map and {count} coordinates in brackets")),
        }
    }

    /// A value that is at most the preceding constant.
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

    /// A register of a fragment. Registers of packed elements are untyped.
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
            Operand::TensorCoordinates(_, list) => {
                format!("a tensor map and {} coordinates", list.len())
            }
            Operand::Vector(list) => format!("a vector of {}", list.len()),
            Operand::Label(_) => "a label".to_owned(),
            Operand::Targets(_) => "a table of labels".to_owned(),
            Operand::Prototype(_) => "a prototype".to_owned(),
            Operand::Function(_) => "a function".to_owned(),
            Operand::List(list) => format!("a list of {}", list.len()),
            Operand::Sink => "`_`".to_owned(),
        }
    }
}
