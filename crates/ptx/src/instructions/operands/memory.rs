//! Memory operands: addresses, symbols and the registers of loads and stores.

use super::Checker;
use crate::ast::{Address, AddressBase, Modifier, Opcode, Operand, StateSpace, Symbol, Type};
use crate::instructions::form::Ty;

impl Checker<'_> {
    /// A destination of a load.
    pub(super) fn loaded(&self, operand: &Operand) -> Result<(), String> {
        match operand {
            Operand::Sink if !self.instruction.is_scalar() => Ok(()),
            _ => self.memory_register(operand),
        }
    }

    /// A source of a store.
    pub(super) fn stored(&self, operand: &Operand) -> Result<(), String> {
        match operand {
            Operand::Register(_) => self.memory_register(operand),
            _ => self.value(operand, self.resolve(Ty::First), true),
        }
    }

    /// A register that a load or store moves: it may be wider than the type in memory.
    fn memory_register(&self, operand: &Operand) -> Result<(), String> {
        self.register(operand, self.resolve(Ty::First), true)
    }

    /// One value, or as many as `.v2` or `.v4` says.
    pub(super) fn memory_value(
        &self,
        operand: &Operand,
        check: &dyn Fn(&Operand) -> Result<(), String>,
    ) -> Result<(), String> {
        let lengths = [Modifier::V2, Modifier::V4, Modifier::V8];
        let count = match self.instruction.modifiers.first_of(&lengths) {
            None => return check(operand),
            Some(Modifier::V2) => 2,
            Some(Modifier::V4) => 4,
            Some(_) => 8,
        };
        // The forms with `.v8` list their types.
        if self.resolve(Ty::First).size() * count > 16 && count != 8 {
            return Err("a vector of at most 16 bytes".to_owned());
        }
        match operand {
            Operand::Vector(list) if list.len() == count as usize => {
                list.iter().try_for_each(check)
            }
            _ => Err(format!("a vector of {count}")),
        }
    }

    pub(super) fn symbol(&self, symbol: Symbol) -> Result<(), String> {
        self.symbol_in(symbol, self.instruction.space())
    }

    pub(super) fn symbol_in(
        &self,
        symbol: Symbol,
        wanted: Option<StateSpace>,
    ) -> Result<(), String> {
        match ((self.names.space)(symbol), wanted) {
            (None, _) => Err("a variable or a parameter".to_owned()),
            (Some(found), Some(wanted)) if found != wanted => {
                Err(format!("a name in .{wanted}; this one is in .{found}"))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn memory(
        &self,
        operand: &Operand,
        space: Option<StateSpace>,
    ) -> Result<(), String> {
        let Operand::Address(Address { base, offset }) = operand else {
            return Err("an [address]".to_owned());
        };
        if i32::try_from(*offset).is_err() {
            return Err("an offset of 32 bits".to_owned());
        }
        match base {
            AddressBase::Symbol(Symbol::Parameter(_)) if self.instruction.opcode == Opcode::St => {
                Err("a result, or a parameter of a call; other parameters are read".to_owned())
            }
            AddressBase::Symbol(symbol) => {
                let found = (self.names.space)(*symbol);
                let generic = self.instruction.opcode != Opcode::Prefetchu
                    && !matches!(found, Some(StateSpace::Param | StateSpace::Const));
                if space.is_none() && found.is_some() && !generic {
                    return Err("a name that a generic address can have".to_owned());
                }
                self.symbol_in(*symbol, space)
            }
            AddressBase::Absolute if space == Some(StateSpace::Local) => Ok(()),
            AddressBase::Absolute => Err("a register or a name as base".to_owned()),
            AddressBase::Register(register) => {
                let near = !matches!(space, None | Some(StateSpace::Global));
                let narrow = near && self.typed(*register, Type::U32, false).is_ok();
                if narrow { Ok(()) } else { self.typed(*register, Type::U64, false) }
            }
        }
    }
}
