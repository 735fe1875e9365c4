//! Decoding of rare integer instructions: carries, dot products, packed integers, and bit fields.

use retrograph_ptx::ast::{Instruction, Modifier as M, Opcode as O, Type};

use super::arithmetic::for_type;
use super::{Decoder, Reason, VirtualRegister, Width, only, operands, type_of};
use crate::bytes::{self, BitField, DotProduct, PackedIntegers, PackedOperation, PermuteMode};
use crate::lane_function::LaneFunction;
use crate::operation::{Comparison, Predicate};

/// The modes of `prmt` other than the default.
const PERMUTE_MODES: &[(M, PermuteMode)] = &[
    (M::ForwardExtract, PermuteMode::ForwardExtract),
    (M::BackwardExtract, PermuteMode::BackwardExtract),
    (M::Replicate8, PermuteMode::Replicate8),
    (M::EdgeClampLeft, PermuteMode::EdgeClampLeft),
    (M::EdgeClampRight, PermuteMode::EdgeClampRight),
    (M::Replicate16, PermuteMode::Replicate16),
];

/// Whether the instruction reads or writes the carry flag.
pub(super) fn has_carry(instruction: &Instruction) -> bool {
    matches!(instruction.opcode, O::Addc | O::Subc | O::Madc) || instruction.modifiers.has(M::Cc)
}

impl Decoder<'_> {
    /// `add.cc`, `addc`, `sub.cc`, `subc`, `mad.cc` and `madc`.
    pub(super) fn with_carry(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        only(instruction, &[M::Cc, M::Lo, M::Hi])?;
        let ty = type_of(instruction)?;
        if instruction.opcode == O::Madc && ty.bits() == 16 {
            return Err(format!("madc of .{ty}, which hardware computes in its own way"));
        }
        let mut registers = Vec::new();
        for operand in instruction.operands.iter().skip(1) {
            registers.push(self.read(operand, ty)?);
        }
        let to = instruction.operands.first().ok_or_else(|| "no operands".to_owned())?;
        let to = self.write(to, ty)?;
        let has = |modifier| instruction.modifiers.has(modifier);
        let (a, b) = match (instruction.opcode, &registers[..]) {
            (O::Mad | O::Madc, &[a, b, c]) => {
                let product = self.temporary(self.width(to));
                let function =
                    if has(M::Hi) { for_type!(mul_high, ty) } else { for_type!(mul_low, ty) };
                self.emit_lanes(function, product, &[a, b]);
                (product, c)
            }
            (O::Add | O::Addc | O::Sub | O::Subc, &[a, b]) => (a, b),
            _ => return Err(format!("{} operands", instruction.operands.len())),
        };
        let carry = self.carry();
        let is_in = matches!(instruction.opcode, O::Addc | O::Subc | O::Madc);
        let subtracts = matches!(instruction.opcode, O::Sub | O::Subc);
        // Without a carry input, a subtraction has no borrow, which is a set carry.
        let none = if subtracts { u64::MAX } else { 0 };
        let given = if is_in { carry } else { self.constant(none, Width::Predicate) };
        let (value, over) = functions(ty, subtracts)?;
        // The carry first goes to a temporary, because the result may overwrite an operand.
        let next = self.temporary(Width::Predicate);
        if has(M::Cc) {
            self.emit_lanes(over, next, &[a, b, given]);
        }
        self.emit_lanes(value, to, &[a, b, given]);
        if has(M::Cc) {
            self.copy(carry, next);
        }
        Ok(())
    }

    /// The register of the thread's carry flag.
    fn carry(&mut self) -> VirtualRegister {
        if let Some(carry) = self.carry {
            return carry;
        }
        let carry = self.temporary(Width::Predicate);
        self.carry = Some(carry);
        carry
    }

    /// Decodes other rare instructions. Returns false if the instruction is not one of them.
    pub(super) fn rare(&mut self, instruction: &Instruction) -> Result<bool, Reason> {
        let Some(function) = function_of(instruction)? else { return Ok(false) };
        let ty = type_of(instruction)?;
        let word = |ty: Type| if ty.bits() == 32 { Type::B32 } else { ty };
        let to = instruction.operands.first().ok_or_else(|| "no operands".to_owned())?;
        let to = self.write(to, word(ty))?;
        let mut registers = Vec::new();
        for operand in instruction.operands.iter().skip(1) {
            registers.push(self.read(operand, word(ty))?);
        }
        self.emit_lanes(function, to, &registers);
        Ok(true)
    }

    /// `lop3` whose result is also combined with a predicate.
    pub(super) fn lop3_with_predicate(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        use retrograph_ptx::ast::{Immediate, Operand};
        only(instruction, &[M::And, M::Or])?;
        let [to, a, b, c, table, predicate] = operands::<6>(instruction)?;
        let Operand::Immediate(Immediate::Integer(table)) = table else {
            return Err("a truth table that is not a constant".to_owned());
        };
        let (to, flag) = self.write_pair(to, Type::B32)?;
        let from = [self.read(a, Type::B32)?, self.read(b, Type::B32)?, self.read(c, Type::B32)?];
        let predicate = self.read(predicate, Type::Pred)?;
        let value = self.temporary(Width::Word);
        self.emit_lanes(LaneFunction::Lop3 { table: *table as u8 }, value, &from);
        if let Some(flag) = flag {
            let zero = self.constant(0, Width::Word);
            let is_set = self.temporary(Width::Predicate);
            let test = Comparison::Equal32;
            let (d, a, b) = (is_set, value, zero);
            self.emit(Predicate::Compare { d, a, b, test, inverted: true });
            let (d, a, b, inverted) = (flag, is_set, predicate, false);
            self.emit(if instruction.modifiers.has(M::And) {
                Predicate::And { d, a, b, inverted }
            } else {
                Predicate::Or { d, a, b, inverted }
            });
        }
        self.copy(to, value);
        Ok(())
    }
}

/// The functions that compute the value and the carry.
fn functions(ty: Type, subtracts: bool) -> Result<(LaneFunction, LaneFunction), Reason> {
    use LaneFunction as F;
    macro_rules! pair {
        ($ty:ty) => {
            if subtracts {
                (F::Plain(bytes::sub_borrow::<$ty>), F::Plain(bytes::borrow_of::<$ty>))
            } else {
                (F::Plain(bytes::add_carry::<$ty>), F::Plain(bytes::carry_of::<$ty>))
            }
        };
    }
    Ok(match ty {
        Type::U16 | Type::S16 => pair!(u16),
        Type::U32 | Type::S32 => pair!(u32),
        Type::U64 | Type::S64 => pair!(u64),
        other => return Err(format!("carries of .{other}")),
    })
}

/// The function of a rare instruction; `None` for others.
fn function_of(instruction: &Instruction) -> Result<Option<LaneFunction>, Reason> {
    use LaneFunction as F;
    let has = |modifier| instruction.modifiers.has(modifier);
    let signed = |index: usize| instruction.types.get(index).is_some_and(|ty| ty.is_signed());
    let ty = type_of(instruction)?;
    let packed = matches!(ty, Type::U16x2 | Type::S16x2);
    let dot = |upper| DotProduct { a_signed: signed(0), b_signed: signed(1), upper };
    Ok(Some(match instruction.opcode {
        O::Add | O::Min | O::Max if packed => {
            let operation = match instruction.opcode {
                O::Add => PackedOperation::Add,
                O::Min => PackedOperation::Min,
                _ => PackedOperation::Max,
            };
            let (signed, relu) = (signed(0), has(M::Relu));
            F::PackedIntegers(PackedIntegers { operation, signed, relu })
        }
        O::Min if has(M::Relu) && ty == Type::S32 => F::Plain(bytes::min_relu),
        O::Max if has(M::Relu) && ty == Type::S32 => F::Plain(bytes::max_relu),
        O::Mad if has(M::Sat) => F::Plain(bytes::mad_saturating),
        O::Mad24 if has(M::Sat) => F::Plain(bytes::mad24_saturating),
        O::Sad => F::Plain(match ty {
            Type::U16 => bytes::sad::<u16>,
            Type::S16 => bytes::sad::<i16>,
            Type::U32 => bytes::sad::<u32>,
            Type::S32 => bytes::sad::<i32>,
            Type::U64 => bytes::sad::<u64>,
            _ => bytes::sad::<i64>,
        }),
        O::Dp4a => F::Dp4a(dot(false)),
        O::Dp2a => F::Dp2a(dot(has(M::Hi))),
        O::Prmt => match PERMUTE_MODES.iter().find(|(modifier, _)| has(*modifier)) {
            Some((_, mode)) => F::Permute(*mode),
            None => return Ok(None),
        },
        O::Bmsk => F::BitMask { wrap: has(M::Wrap) },
        O::Szext => F::SignExtend(BitField { wrap: has(M::Wrap), signed: signed(0) }),
        O::Fns => F::Plain(bytes::fns),
        _ => return Ok(None),
    }))
}
