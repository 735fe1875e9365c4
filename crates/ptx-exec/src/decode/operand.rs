//! Decoding of operands.

use retrograph_ptx::ast::{Immediate, Operand, RegisterId, SpecialRegister, Type};

use super::{Decoder, Preset, Reason, VirtualRegister, Width, width_of};
use crate::call_stack::address_of_function;
use crate::operation::{Control, Convert, Integer, Operation, Predicate};

/// The time of an instruction in `%globaltimer`. It is large so that kernels that wait for a time
/// end soon.
const NANOSECONDS: u64 = 1000;

impl Decoder<'_> {
    /// The virtual register of a register.
    pub(super) fn register(&self, register: RegisterId) -> Result<VirtualRegister, Reason> {
        self.frame.register(register.0).ok_or_else(|| "a register that is not declared".to_owned())
    }

    /// The width of a virtual register.
    pub(super) fn width(&self, register: VirtualRegister) -> Width {
        self.registers[register.0 as usize].width
    }

    /// The virtual register of a predicate.
    pub(super) fn predicate(&self, register: RegisterId) -> Result<VirtualRegister, Reason> {
        let register = self.register(register)?;
        self.expect(register, Width::Predicate)
    }

    fn expect(&self, register: VirtualRegister, width: Width) -> Result<VirtualRegister, Reason> {
        if self.width(register) == width {
            Ok(register)
        } else {
            Err(format!("a register of another width than {width:?}"))
        }
    }

    /// The register of an operand that is read as a value of type `ty`.
    pub(super) fn read(&mut self, operand: &Operand, ty: Type) -> Result<VirtualRegister, Reason> {
        let register = self.read_any_width(operand, ty)?;
        self.expect(register, width_of(ty))
    }

    /// [`Self::read`] for instructions whose registers may be wider than the type.
    pub(super) fn read_any_width(
        &mut self,
        operand: &Operand,
        ty: Type,
    ) -> Result<VirtualRegister, Reason> {
        let width = width_of(ty);
        match operand {
            Operand::Register(register) => self.register(*register),
            Operand::NotPredicate(register) => {
                let positive = self.predicate(*register)?;
                let negative = self.temporary(Width::Predicate);
                let (d, a, b) = (negative, positive, positive);
                self.unguarded(Predicate::Or { d, a, b, inverted: true });
                Ok(negative)
            }
            Operand::Immediate(immediate) => {
                let bits = bits_of(*immediate, ty)?;
                Ok(self.constant(bits, width))
            }
            Operand::Special(special) => self.special(*special, ty),
            Operand::Symbol(symbol, offset) => Ok(self.symbol_address(*symbol, *offset, width)?.1),
            Operand::Function(index) if width == Width::Double => {
                let function = self.module.functions.get(*index as usize);
                let function = function.ok_or_else(|| "an unknown function".to_owned())?;
                Ok(self.constant(address_of_function(&function.code.name), width))
            }
            other => Err(format!("the operand {other:?} as a value")),
        }
    }

    /// The register of an operand that is written as a value of type `ty`.
    pub(super) fn write(&mut self, operand: &Operand, ty: Type) -> Result<VirtualRegister, Reason> {
        match operand {
            Operand::Register(register) => self.expect(self.register(*register)?, width_of(ty)),
            Operand::Sink => Ok(self.temporary(width_of(ty))),
            other => Err(format!("the operand {other:?} as a destination")),
        }
    }

    /// Both destinations of `d|p`; the second is optional.
    pub(super) fn write_pair(
        &mut self,
        operand: &Operand,
        ty: Type,
    ) -> Result<(VirtualRegister, Option<VirtualRegister>), Reason> {
        match operand {
            Operand::Pair(first, second) => {
                let first = match first {
                    Some(first) => self.expect(self.register(*first)?, width_of(ty))?,
                    None => self.temporary(width_of(ty)),
                };
                Ok((first, second.map(|second| self.predicate(second)).transpose()?))
            }
            other => Ok((self.write(other, ty)?, None)),
        }
    }

    fn special(&mut self, special: SpecialRegister, ty: Type) -> Result<VirtualRegister, Reason> {
        let width = if special == SpecialRegister::Clock64 { Width::Double } else { Width::Word };
        Ok(match special {
            // All grids have the same id.
            SpecialRegister::GridId => self.constant(0, width_of(ty)),
            SpecialRegister::Clock | SpecialRegister::ClockHigh | SpecialRegister::Clock64 => {
                let d = self.temporary(width);
                self.unguarded(match special {
                    SpecialRegister::Clock => Control::Clock32 { d },
                    SpecialRegister::ClockHigh => Control::ClockHigh { d },
                    _ => Control::Clock64 { d },
                });
                d
            }
            SpecialRegister::GlobalTimer
            | SpecialRegister::GlobalTimerLow
            | SpecialRegister::GlobalTimerHigh => self.timer(special),
            SpecialRegister::EnvReg1 | SpecialRegister::EnvReg2 => {
                self.uses_workspace = true;
                self.preset(Preset::Special(special), Width::Word)
            }
            other if is_environment(other) => {
                return Err(format!("{other}, whose value is known to the driver alone"));
            }
            other => self.preset(Preset::Special(other), Width::Word),
        })
    }

    /// The time in nanoseconds, or its low or high word.
    fn timer(&mut self, special: SpecialRegister) -> VirtualRegister {
        let (count, time) = (self.temporary(Width::Double), self.temporary(Width::Double));
        self.unguarded(Control::Clock64 { d: count });
        let nanoseconds = self.constant(NANOSECONDS, Width::Double);
        self.unguarded(Integer::MulLow64 { d: time, a: count, b: nanoseconds });
        if special == SpecialRegister::GlobalTimer {
            return time;
        }
        let half = self.temporary(Width::Word);
        match special {
            SpecialRegister::GlobalTimerLow => self.unguarded(Convert::Low32 { d: half, a: time }),
            _ => {
                let bits = self.constant(32, Width::Word);
                let high = self.temporary(Width::Double);
                self.unguarded(Integer::ShrU64 { d: high, a: time, b: bits });
                self.unguarded(Convert::Low32 { d: half, a: high });
            }
        }
        half
    }

    /// Appends an operation that computes an operand. It runs in all lanes, ignoring the guard.
    pub(super) fn unguarded(&mut self, operation: impl Into<Operation<VirtualRegister>>) {
        let guard = self.guard.take();
        self.emit(operation);
        self.guard = guard;
    }
}

/// Whether this is `%envreg0` to `%envreg31`, which the driver defines.
fn is_environment(special: SpecialRegister) -> bool {
    (SpecialRegister::EnvReg0..=SpecialRegister::EnvReg31).contains(&special)
}

/// The bits of a constant of type `ty`.
pub(super) fn bits_of(immediate: Immediate, ty: Type) -> Result<u64, Reason> {
    let bits = match (immediate, ty) {
        (Immediate::Integer(value), Type::Pred) => {
            if value == 0 {
                0
            } else {
                u64::MAX
            }
        }
        (Immediate::Integer(value), _) if !ty.is_float() => value as u64,
        (Immediate::F32(bits), Type::F32 | Type::B32) => u64::from(bits),
        (Immediate::F64(bits), Type::F64 | Type::B64) => bits,
        (Immediate::F64(bits), Type::F32) => u64::from((f64::from_bits(bits) as f32).to_bits()),
        _ => return Err(format!("the constant {immediate} as a .{ty}")),
    };
    let used = if ty.bits() == 0 { 64 } else { ty.bits() };
    Ok(bits & u64::MAX >> (64 - used))
}
