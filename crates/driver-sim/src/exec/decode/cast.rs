//! `mov`, `cvta` and `cvt`.

use retrograph_ptx::ast::{Instruction, Modifier as M, Opcode as O, Operand, Space, Type};

use super::float::mode_of;
use super::{Decoder, Op, Reason, Slot, Width, only, operands, type_of, width_of};
use crate::exec::access::{LOCAL_WINDOW, SHARED_WINDOW};
use crate::exec::convert::{Conversion, pack_halves};
use crate::exec::float::FloatMode;
use crate::exec::lanes::encode_parts;

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
                let extra = encode_parts(parts.len(), part.bits());
                self.emit(Op::Unpack, &writes, &[whole], extra);
            }
            [whole, Operand::Vector(parts)] => {
                let part = part_type(ty, parts.len())?;
                let whole = self.write(whole, ty)?;
                let mut reads = Vec::new();
                for operand in parts {
                    reads.push(self.read(operand, part)?);
                }
                self.emit(Op::Pack, &[whole], &reads, encode_parts(parts.len(), part.bits()));
            }
            [to, from] => {
                let (to, from) = (self.write(to, ty)?, self.read(from, ty)?);
                self.copy(to, from);
            }
        }
        Ok(())
    }

    /// Emits `to = from`, both of the same width.
    pub(super) fn copy(&mut self, to: Slot, from: Slot) {
        match self.width(to) {
            Width::Predicate => self.emit(Op::PredicateOr, &[to], &[from, from], 0),
            Width::Word => self.emit(Op::Move32, &[to], &[from], 0),
            Width::Double => self.emit(Op::Move64, &[to], &[from], 0),
        }
    }

    fn address_conversion(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        only(instruction, &[M::To, M::Global, M::Shared, M::Local, M::Const])?;
        let ty = type_of(instruction)?;
        let [to, from] = operands::<2>(instruction)?;
        let (to, from) = (self.write(to, ty)?, self.read(from, ty)?);
        let window = match instruction.space() {
            Some(Space::Shared) => SHARED_WINDOW,
            Some(Space::Local) => LOCAL_WINDOW,
            _ => 0,
        };
        if window == 0 {
            self.copy(to, from);
        } else if width_of(ty) == Width::Double {
            let into = instruction.modifiers.has(M::To);
            let window = self.constant(window, Width::Double);
            self.emit(if into { Op::Sub64 } else { Op::Add64 }, &[to], &[from, window], 0);
        } else {
            return Err("generic addresses of 32 bits".to_owned());
        }
        Ok(())
    }

    /// `cvt`.
    pub(super) fn conversion(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        let mut allowed = vec![M::Ftz, M::Sat];
        allowed.extend(ROUNDINGS.iter().chain(INTEGRAL));
        only(instruction, &allowed)?;
        let [to_type, from_type] = instruction.types[..] else {
            return Err("without two types".to_owned());
        };
        let mode = mode_of(instruction.modifiers);
        if matches!(to_type, Type::F16x2 | Type::Bf16x2) {
            return self.pack_conversion(instruction, mode);
        }
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
            && let Some(op) = fast(to_type, from_type, integral)
        {
            self.emit(op, &[to], &[from], 0);
            return Ok(());
        }
        if to_type == Type::Bf16 && from_type.bits() == 64 {
            return Err("conversions from 64 bits to .bf16".to_owned());
        }
        let conversion = Conversion { from: from_type, to: to_type, mode, integral };
        self.emit_lanes(convert, encode(conversion)?, to, &[from]);
        Ok(())
    }

    fn pack_conversion(&mut self, i: &Instruction, mode: FloatMode) -> Result<(), Reason> {
        let [to, high, low] = operands::<3>(i)?;
        if i.types[1] != Type::F32 || mode.saturate || mode.flush {
            return Err("this packed conversion".to_owned());
        }
        let to = self.write(to, Type::B32)?;
        let from = [self.read(high, Type::F32)?, self.read(low, Type::F32)?];
        let bf16 = u64::from(i.types[0] == Type::Bf16x2) << 8;
        self.emit_lanes(convert_packed, mode.encode() | bf16, to, &from);
        Ok(())
    }
}

fn part_type(ty: Type, parts: usize) -> Result<Type, Reason> {
    match (ty.bits(), parts) {
        (64, 2) => Ok(Type::B32),
        (64, 4) | (32, 2) => Ok(Type::B16),
        _ => Err(format!("a vector of {parts} parts in a .{ty}")),
    }
}

fn fast(to: Type, from: Type, integral: bool) -> Option<Op> {
    Some(match (to, from) {
        (Type::F32, Type::U32) => Op::U32ToF32,
        (Type::F32, Type::S32) => Op::S32ToF32,
        (Type::U64 | Type::S64, Type::U32) => Op::U32To64,
        (Type::U64 | Type::S64, Type::S32) => Op::S32To64,
        (Type::U32 | Type::S32, Type::U64 | Type::S64) => Op::Low32,
        (Type::U32 | Type::S32, Type::U32 | Type::S32) => Op::Move32,
        (Type::U64 | Type::S64, Type::U64 | Type::S64) => Op::Move64,
        (Type::F64, Type::F32) => Op::F32ToF64,
        (Type::F32, Type::F64) if !integral => Op::F64ToF32,
        _ => return None,
    })
}

/// A conversion as a number.
fn encode(conversion: Conversion) -> Result<u64, Reason> {
    let place = |ty: Type| Type::ALL.iter().position(|&other| other == ty).unwrap_or(0) as u64;
    for ty in [conversion.from, conversion.to] {
        if matches!(ty, Type::Pred | Type::F16x2 | Type::Bf16x2) {
            return Err(format!("conversions of .{ty}"));
        }
    }
    let types = place(conversion.from) << 16 | place(conversion.to) << 8;
    Ok(types | u64::from(conversion.integral) << 7 | conversion.mode.encode())
}

/// Executes a conversion that [`encode`] encoded.
fn convert([value, _, _]: [u64; 3], code: u64) -> u64 {
    let ty = |place: u64| Type::ALL[(place & 0xff) as usize];
    let conversion = Conversion {
        from: ty(code >> 16),
        to: ty(code >> 8),
        mode: FloatMode::decode(code),
        integral: code >> 7 & 1 == 1,
    };
    let result = conversion.apply(value);
    // The register may be wider than the type, and is then filled by the sign.
    let unused = 64 - conversion.to.bits();
    if conversion.to.is_signed() { ((result << unused) as i64 >> unused) as u64 } else { result }
}

fn convert_packed([high, low, _]: [u64; 3], code: u64) -> u64 {
    let ty = if code >> 8 & 1 == 1 { Type::Bf16x2 } else { Type::F16x2 };
    pack_halves(high, low, ty, FloatMode::decode(code).rounding)
}
