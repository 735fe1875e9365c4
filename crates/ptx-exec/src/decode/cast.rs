//! `mov`, `cvta` and `cvt`.

use retrograph_ptx::ast::{Instruction, Modifier as M, Opcode as O, Operand, StateSpace, Type};

use super::float::mode_of;
use super::{Decoder, Reason, VirtualRegister, Width, only, operands, type_of, width_of};
use crate::access::{LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW};
use crate::convert::Conversion;
use crate::lane_function::LaneFunction;
use crate::narrow::{self, Narrow, Narrowing};
use crate::operation::{Convert, Function, Integer, Predicate};

const ROUNDINGS: &[M] = &[M::Rn, M::Rz, M::Rm, M::Rp];
const INTEGRAL: &[M] = &[M::Rni, M::Rzi, M::Rmi, M::Rpi];

impl Decoder<'_> {
    /// `mov` and `cvta`.
    pub(super) fn movement(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        if instruction.opcode == O::Cvta {
            return self.address_conversion(instruction);
        }
        only(instruction, &[])?;
        let ty = type_of(instruction)?;
        match operands::<2>(instruction)? {
            [Operand::Vector(parts), whole] => {
                let part = part_type(ty, parts.len())?;
                let whole = self.read(whole, ty)?;
                let mut writes = Vec::new();
                for operand in parts {
                    writes.push(self.write(operand, part)?);
                }
                let bits = part.bits();
                self.emit(match writes[..] {
                    [d0, d1, d2, d3] => Function::Unpack4 { d0, d1, d2, d3, a: whole, bits },
                    _ => Function::Unpack2 { d0: writes[0], d1: writes[1], a: whole, bits },
                });
            }
            [whole, Operand::Vector(parts)] => {
                let part = part_type(ty, parts.len())?;
                let whole = self.write(whole, ty)?;
                let mut reads = Vec::new();
                for operand in parts {
                    reads.push(self.read(operand, part)?);
                }
                let bits = part.bits();
                self.emit(match reads[..] {
                    [a, b, c, e] => Function::Pack4 { d: whole, a, b, c, e, bits },
                    _ => Function::Pack2 { d: whole, a: reads[0], b: reads[1], bits },
                });
            }
            [to, from] => {
                let (to, from) = (self.write(to, ty)?, self.read(from, ty)?);
                self.copy(to, from);
            }
        }
        Ok(())
    }

    /// Emits `to = from`, both of the same width.
    pub(super) fn copy(&mut self, to: VirtualRegister, from: VirtualRegister) {
        match self.width(to) {
            Width::Predicate => {
                self.emit(Predicate::Or { d: to, a: from, b: from, inverted: false });
            }
            Width::Word => self.emit(Convert::Move32 { d: to, a: from }),
            Width::Double => self.emit(Convert::Move64 { d: to, a: from }),
        }
    }

    fn address_conversion(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        only(
            instruction,
            &[
                M::To,
                M::Global,
                M::Shared,
                M::SharedCta,
                M::SharedCluster,
                M::Local,
                M::Const,
                M::Param,
                M::ParamEntry,
            ],
        )?;
        let ty = type_of(instruction)?;
        let [to, from] = operands::<2>(instruction)?;
        let (to, from) = (self.write(to, ty)?, self.read(from, ty)?);
        let window = match instruction.space() {
            Some(StateSpace::Shared) => SHARED_WINDOW,
            Some(StateSpace::Local) => LOCAL_WINDOW,
            // Parameters of functions are in local memory.
            Some(StateSpace::Param) if self.frame.code != 0 => LOCAL_WINDOW,
            Some(StateSpace::Param) => PARAM_WINDOW,
            _ => 0,
        };
        if window == 0 {
            self.copy(to, from);
        } else if width_of(ty) == Width::Double {
            let into = instruction.modifiers.has(M::To);
            let window = self.constant(window, Width::Double);
            self.emit(if into {
                Integer::Sub64 { d: to, a: from, b: window }
            } else {
                Integer::Add64 { d: to, a: from, b: window }
            });
        } else {
            return Err("generic addresses of 32 bits".to_owned());
        }
        Ok(())
    }

    /// `cvt`.
    pub(super) fn conversion(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        if is_narrowing(instruction) {
            return self.narrow(instruction);
        }
        let mut allowed = vec![M::Ftz, M::Sat];
        allowed.extend(ROUNDINGS.iter().chain(INTEGRAL));
        only(instruction, &allowed)?;
        let [to_type, from_type] = instruction.types[..] else {
            return Err("without two types".to_owned());
        };
        let mode = mode_of(instruction.modifiers);
        let [to, from] = operands::<2>(instruction)?;
        let from = self.read_any_width(from, from_type)?;
        let to = match to {
            Operand::Register(register) => self.register(*register)?,
            other => self.write(other, to_type)?,
        };
        let integral = instruction.modifiers.first_of(INTEGRAL).is_some();
        let direct = self.width(to) == width_of(to_type) && self.width(from) == width_of(from_type);
        if direct
            && mode.is_plain()
            && let Some(operation) = common(to_type, from_type, integral, to, from)
        {
            self.emit(operation);
            return Ok(());
        }
        for ty in [from_type, to_type] {
            if matches!(ty, Type::Pred | Type::F16x2 | Type::Bf16x2) {
                return Err(format!("conversions of .{ty}"));
            }
        }
        let conversion = Conversion { from: from_type, to: to_type, mode, integral };
        self.emit_lanes(LaneFunction::Convert(conversion), to, &[from]);
        Ok(())
    }

    /// Conversions to formats or with modifiers that [`Conversion`] does not support.
    fn narrow(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        only(instruction, &[M::Rn, M::Rz, M::Rna, M::Relu, M::Satfinite])?;
        let [to_type, from_type] = instruction.types[..] else {
            return Err("without two types".to_owned());
        };
        let has = |modifier| instruction.modifiers.has(modifier);
        let widens = to_type == Type::F16x2 && from_type != Type::F32;
        let to = narrow_format(if widens { from_type } else { to_type })?;
        let narrowing = Narrowing {
            to,
            rounding: mode_of(instruction.modifiers).rounding,
            away: has(M::Rna),
            relu: has(M::Relu),
            finite: has(M::Satfinite),
        };
        let word = if to_type.bits() == 16 { Type::B16 } else { Type::B32 };
        let (to, from) = match &instruction.operands[..] {
            [to, from @ ..] => (self.write(to, word)?, from),
            [] => return Err("no operands".to_owned()),
        };
        let mut registers = Vec::new();
        for operand in from {
            registers.push(self.read(operand, from_type)?);
        }
        if narrowing == Narrowing::BF16 && from_type == Type::F32 {
            match registers[..] {
                [a] => self.emit(Convert::F32ToBf16 { d: to, a }),
                [a, b] => self.emit(Convert::F32ToBf16x2 { d: to, a, b }),
                _ => return Err("without one or two operands".to_owned()),
            }
            return Ok(());
        }
        let function: fn([u64; 3], Narrowing) -> u64 = match (registers.len(), from_type) {
            (2, Type::F32) => narrow::two,
            (1, Type::F32) => narrow::one,
            (1, Type::F16x2) => narrow::halves_to_bytes,
            (1, Type::E4m3x2 | Type::E5m2x2) if widens => narrow::bytes_to_halves,
            _ => return Err(format!("a conversion of .{from_type} to .{to_type}")),
        };
        self.emit_lanes(LaneFunction::Narrow { function, narrowing }, to, &registers);
        Ok(())
    }
}

/// Whether the conversion is one of [`Narrowing`].
fn is_narrowing(instruction: &Instruction) -> bool {
    let is_packed = |ty: &Type| {
        let kinds = [Type::F16x2, Type::Bf16x2, Type::E4m3x2, Type::E5m2x2, Type::Tf32];
        kinds.contains(ty)
    };
    let special = [M::Relu, M::Satfinite].into_iter().any(|word| instruction.modifiers.has(word));
    special || instruction.types.iter().any(is_packed)
}

fn narrow_format(ty: Type) -> Result<Narrow, Reason> {
    Ok(match ty {
        Type::F16 | Type::F16x2 => Narrow::F16,
        Type::Bf16 | Type::Bf16x2 => Narrow::Bf16,
        Type::E4m3x2 => Narrow::E4m3,
        Type::E5m2x2 => Narrow::E5m2,
        Type::Tf32 => Narrow::Tf32,
        other => return Err(format!("a narrow .{other}")),
    })
}

fn part_type(ty: Type, parts: usize) -> Result<Type, Reason> {
    match (ty.bits(), parts) {
        (64, 2) => Ok(Type::B32),
        (64, 4) | (32, 2) => Ok(Type::B16),
        (32, 4) | (16, 2) => Ok(Type::B8),
        _ => Err(format!("a vector of {parts} parts in a .{ty}")),
    }
}

/// The operation of a common conversion, rounded to nearest.
fn common(
    to: Type,
    from: Type,
    integral: bool,
    d: VirtualRegister,
    a: VirtualRegister,
) -> Option<Convert<VirtualRegister>> {
    Some(match (to, from) {
        (Type::F32, Type::U32) => Convert::U32ToF32 { d, a },
        (Type::F32, Type::S32) => Convert::S32ToF32 { d, a },
        (Type::U64 | Type::S64, Type::U32) => Convert::U32To64 { d, a },
        (Type::U64 | Type::S64, Type::S32) => Convert::S32To64 { d, a },
        (Type::U32 | Type::S32, Type::U64 | Type::S64) => Convert::Low32 { d, a },
        (Type::U32 | Type::S32, Type::U32 | Type::S32) => Convert::Move32 { d, a },
        (Type::U64 | Type::S64, Type::U64 | Type::S64) => Convert::Move64 { d, a },
        (Type::Bf16, Type::F32) => Convert::F32ToBf16 { d, a },
        (Type::F64, Type::F32) => Convert::F32ToF64 { d, a },
        (Type::F32, Type::F64) if !integral => Convert::F64ToF32 { d, a },
        _ => return None,
    })
}
