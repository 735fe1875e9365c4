//! `mov`, `cvta` and `cvt`.

use retrograph_ptx::ast::{Instruction, Modifier as M, Opcode as O, Operand, Space, Type};

use super::float::mode_of;
use super::{Decoder, Op, Reason, Slot, Width, only, operands, type_of, width_of};
use crate::exec::access::{LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW};
use crate::exec::convert::Conversion;
use crate::exec::float::FloatMode;
use crate::exec::lanes::encode_parts;
use crate::exec::narrow::{self, Narrow, Narrowing};

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
            Some(Space::Shared) => SHARED_WINDOW,
            Some(Space::Local) => LOCAL_WINDOW,
            // What is passed to a function lies in local memory.
            Some(Space::Param) if self.frame.code != 0 => LOCAL_WINDOW,
            Some(Space::Param) => PARAM_WINDOW,
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
            && let Some(op) = fast(to_type, from_type, integral)
        {
            self.emit(op, &[to], &[from], 0);
            return Ok(());
        }
        let conversion = Conversion { from: from_type, to: to_type, mode, integral };
        self.emit_lanes(convert, encode(conversion)?, to, &[from]);
        Ok(())
    }

    /// Conversions to formats or with modifiers that [`Conversion`] does not know.
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
        let mut slots = Vec::new();
        for operand in from {
            slots.push(self.read(operand, from_type)?);
        }
        let function = match (slots.len(), from_type) {
            (2, Type::F32) => narrow::two,
            (1, Type::F32) => narrow::one,
            (1, Type::F16x2) => narrow::halves_to_bytes,
            (1, Type::E4m3x2 | Type::E5m2x2) if widens => narrow::bytes_to_halves,
            _ => return Err(format!("a conversion of .{from_type} to .{to_type}")),
        };
        self.emit_lanes(function, narrowing.encode(), to, &slots);
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
