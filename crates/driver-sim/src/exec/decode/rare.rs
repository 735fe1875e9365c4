//! Integer instructions that few kernels have: carries, dot products, packed integers, and fields
//! of bits.

use retrograph_ptx::ast::{Instruction, Modifier as M, Opcode as O, Type};

use super::arithmetic::for_type;
use super::{Decoder, Op, Reason, Slot, Width, only, operands, type_of};
use crate::exec::bytes;
use crate::exec::integer::LaneFunction;

/// The modes of `prmt`, in the order of their numbers.
const PRMT_MODES: &[M] = &[
    M::ForwardExtract,
    M::BackwardExtract,
    M::Replicate8,
    M::EdgeClampLeft,
    M::EdgeClampRight,
    M::Replicate16,
];

/// Whether the instruction reads or writes the carry.
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
        let mut slots = Vec::new();
        for operand in instruction.operands.iter().skip(1) {
            slots.push(self.read(operand, ty)?);
        }
        let to = instruction.operands.first().ok_or_else(|| "no operands".to_owned())?;
        let to = self.write(to, ty)?;
        let has = |modifier| instruction.modifiers.has(modifier);
        let (a, b) = match (instruction.opcode, &slots[..]) {
            (O::Mad | O::Madc, &[a, b, c]) => {
                let product = self.temporary(self.width(to));
                let function =
                    if has(M::Hi) { for_type!(mul_high, ty) } else { for_type!(mul_low, ty) };
                self.emit_lanes(function, 0, product, &[a, b]);
                (product, c)
            }
            (O::Add | O::Addc | O::Sub | O::Subc, &[a, b]) => (a, b),
            _ => return Err(format!("{} operands", instruction.operands.len())),
        };
        let carry = self.carry();
        let is_in = matches!(instruction.opcode, O::Addc | O::Subc | O::Madc);
        let subtracts = matches!(instruction.opcode, O::Sub | O::Subc);
        // A subtraction without a carry to take is one without a borrow.
        let none = if subtracts { u64::MAX } else { 0 };
        let given = if is_in { carry } else { self.constant(none, Width::Predicate) };
        let (value, over) = functions(ty, subtracts)?;
        // The carry goes to a temporary, because the result may be written over an operand.
        let next = self.temporary(Width::Predicate);
        if has(M::Cc) {
            self.emit_lanes(over, 0, next, &[a, b, given]);
        }
        self.emit_lanes(value, 0, to, &[a, b, given]);
        if has(M::Cc) {
            self.copy(carry, next);
        }
        Ok(())
    }

    /// The slot of the carry, of which a thread has one.
    fn carry(&mut self) -> Slot {
        if let Some(carry) = self.carry {
            return carry;
        }
        let carry = self.temporary(Width::Predicate);
        self.carry = Some(carry);
        carry
    }

    /// The other rare instructions; false when this is none.
    pub(super) fn rare(&mut self, instruction: &Instruction) -> Result<bool, Reason> {
        let Some((function, constant)) = function_of(instruction)? else { return Ok(false) };
        let ty = type_of(instruction)?;
        let word = |ty: Type| if ty.bits() == 32 { Type::B32 } else { ty };
        let to = instruction.operands.first().ok_or_else(|| "no operands".to_owned())?;
        let to = self.write(to, word(ty))?;
        let mut slots = Vec::new();
        for operand in instruction.operands.iter().skip(1) {
            slots.push(self.read(operand, word(ty))?);
        }
        self.emit_lanes(function, constant, to, &slots);
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
        self.emit_lanes(crate::exec::integer::lop3, *table as u64, value, &from);
        if let Some(flag) = flag {
            let zero = self.constant(0, Width::Word);
            let is_set = self.temporary(Width::Predicate);
            self.emit(Op::Equal32, &[is_set], &[value, zero], u32::MAX);
            let and = instruction.modifiers.has(M::And);
            let op = if and { Op::PredicateAnd } else { Op::PredicateOr };
            self.emit(op, &[flag], &[is_set, predicate], 0);
        }
        self.copy(to, value);
        Ok(())
    }
}

/// What gives the value and what the carry.
fn functions(ty: Type, subtracts: bool) -> Result<(LaneFunction, LaneFunction), Reason> {
    macro_rules! pair {
        ($ty:ty) => {
            if subtracts {
                (bytes::sub_borrow::<$ty>, bytes::borrow_of::<$ty>)
            } else {
                (bytes::add_carry::<$ty>, bytes::carry_of::<$ty>)
            }
        };
    }
    let pair: (LaneFunction, LaneFunction) = match ty {
        Type::U16 | Type::S16 => pair!(u16),
        Type::U32 | Type::S32 => pair!(u32),
        Type::U64 | Type::S64 => pair!(u64),
        other => return Err(format!("carries of .{other}")),
    };
    Ok(pair)
}

fn function_of(instruction: &Instruction) -> Result<Option<(LaneFunction, u64)>, Reason> {
    let has = |modifier| instruction.modifiers.has(modifier);
    let signed =
        |index: usize| u64::from(instruction.types.get(index).is_some_and(|ty| ty.is_signed()));
    let ty = type_of(instruction)?;
    let pairs = matches!(ty, Type::U16x2 | Type::S16x2);
    let wraps = u64::from(has(M::Wrap));
    let found: (LaneFunction, u64) = match instruction.opcode {
        O::Add | O::Min | O::Max if pairs => {
            let operation = match instruction.opcode {
                O::Add => 0,
                O::Min => 1,
                _ => 2,
            };
            (bytes::pairs, signed(0) | u64::from(has(M::Relu)) << 1 | operation << 2)
        }
        O::Min | O::Max if has(M::Relu) && ty == Type::S32 => {
            (bytes::extremum_relu, u64::from(instruction.opcode == O::Max))
        }
        O::Mad if has(M::Sat) => (bytes::mad_saturating, 0),
        O::Mad24 if has(M::Sat) => (bytes::mad24_saturating, 0),
        O::Sad => match ty {
            Type::U16 => (bytes::sad::<u16>, 0),
            Type::S16 => (bytes::sad::<i16>, 0),
            Type::U32 => (bytes::sad::<u32>, 0),
            Type::S32 => (bytes::sad::<i32>, 0),
            Type::U64 => (bytes::sad::<u64>, 0),
            _ => (bytes::sad::<i64>, 0),
        },
        O::Dp4a => (bytes::dp4a, signed(0) | signed(1) << 1),
        O::Dp2a => (bytes::dp2a, signed(0) | signed(1) << 1 | u64::from(has(M::Hi)) << 2),
        O::Prmt => match PRMT_MODES.iter().position(|&mode| has(mode)) {
            Some(mode) => (bytes::prmt_mode, mode as u64),
            None => return Ok(None),
        },
        O::Bmsk => (bytes::bmsk, wraps),
        O::Szext => (bytes::szext, wraps | signed(0) << 1),
        O::Fns => (bytes::fns, 0),
        _ => return Ok(None),
    };
    Ok(Some(found))
}
