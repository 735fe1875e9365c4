//! Integer arithmetic and logic.

use retrograph_ptx::ast::{Immediate, Instruction, Modifier as M, Opcode as O, Operand, Type};

use super::{Decoder, Op, Reason, Slot, Width, only, type_of, width_of};
use crate::exec::integer::{self, LaneFunction};

/// The function of `integer` for a type.
macro_rules! for_type {
    ($function:ident, $ty:expr) => {{
        let function: $crate::exec::integer::LaneFunction = match $ty {
            Type::U8 | Type::B8 => $crate::exec::integer::$function::<u8>,
            Type::S8 => $crate::exec::integer::$function::<i8>,
            Type::U16 | Type::B16 => $crate::exec::integer::$function::<u16>,
            Type::S16 => $crate::exec::integer::$function::<i16>,
            Type::S32 => $crate::exec::integer::$function::<i32>,
            Type::U64 | Type::B64 => $crate::exec::integer::$function::<u64>,
            Type::S64 => $crate::exec::integer::$function::<i64>,
            _ => $crate::exec::integer::$function::<u32>,
        };
        function
    }};
}
pub(super) use for_type;

/// What an instruction becomes.
enum Form {
    /// An instruction of the interpreter.
    Fast(Op),
    /// A function of one lane and its constant.
    Lanes(LaneFunction, u64),
}

impl Decoder<'_> {
    /// Everything on integers and bits that is not a comparison or a conversion.
    pub(super) fn arithmetic(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        only(instruction, allowed(instruction.opcode))?;
        let ty = type_of(instruction)?;
        let types = operand_types(instruction, ty);
        if types.len() != instruction.operands.len() {
            return Err(format!("{} operands", instruction.operands.len()));
        }
        if ty == Type::Pred {
            return self.predicate_logic(instruction);
        }
        if instruction.opcode == O::Lop3 {
            return self.lop3(instruction);
        }
        let to = self.write(&instruction.operands[0], types[0])?;
        let mut from = Vec::new();
        for (operand, ty) in instruction.operands[1..].iter().zip(&types[1..]) {
            from.push(self.read(operand, *ty)?);
        }
        self.append(select(instruction, ty)?, to, from)
    }

    fn append(&mut self, form: Form, to: Slot, from: Vec<Slot>) -> Result<(), Reason> {
        match form {
            Form::Fast(op) => self.emit(op, &[to], &from, 0),
            Form::Lanes(function, constant) => self.emit_lanes(function, constant, to, &from),
        }
        Ok(())
    }

    fn predicate_logic(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        let to = self.write(&instruction.operands[0], Type::Pred)?;
        let a = self.read(&instruction.operands[1], Type::Pred)?;
        let second = instruction.operands.get(2);
        let b = second.map_or(Ok(a), |operand| self.read(operand, Type::Pred))?;
        let (op, invert) = match instruction.opcode {
            O::And => (Op::PredicateAnd, 0),
            O::Or => (Op::PredicateOr, 0),
            O::Xor => (Op::PredicateXor, 0),
            O::Not => (Op::PredicateOr, u32::MAX),
            other => return Err(format!("{other} of predicates")),
        };
        self.emit(op, &[to], &[a, b], invert);
        Ok(())
    }

    fn lop3(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        let Some(Operand::Immediate(Immediate::Integer(table))) = instruction.operands.get(4)
        else {
            return Err("a truth table that is not a constant".to_owned());
        };
        let to = self.write(&instruction.operands[0], Type::B32)?;
        let mut from = Vec::new();
        for operand in &instruction.operands[1..4] {
            from.push(self.read(operand, Type::B32)?);
        }
        self.emit_lanes(integer::lop3, *table as u64, to, &from);
        Ok(())
    }
}

fn allowed(opcode: O) -> &'static [M] {
    match opcode {
        O::Add | O::Sub => &[M::Sat],
        O::Mul => &[M::Lo, M::Hi, M::Wide],
        O::Mad => &[M::Lo, M::Hi, M::Wide],
        O::Mul24 | O::Mad24 => &[M::Lo, M::Hi],
        O::Shf => &[M::L, M::R, M::Wrap, M::Clamp],
        O::Bfind => &[M::ShiftAmount],
        _ => &[],
    }
}

/// The types of the operands, destination first.
fn operand_types(instruction: &Instruction, ty: Type) -> Vec<Type> {
    let wide = if ty.bits() == 16 { Type::B32 } else { Type::B64 };
    match instruction.opcode {
        O::Mul if instruction.modifiers.has(M::Wide) => vec![wide, ty, ty],
        O::Mad if instruction.modifiers.has(M::Wide) => vec![wide, ty, ty, wide],
        O::Mad | O::Mad24 | O::Prmt => vec![ty; 4],
        O::Lop3 => vec![ty; 5],
        O::Shl | O::Shr => vec![ty, ty, Type::U32],
        O::Shf => vec![ty, ty, ty, Type::U32],
        O::Bfe => vec![ty, ty, Type::U32, Type::U32],
        O::Bfi => vec![ty, ty, ty, Type::U32, Type::U32],
        O::Clz | O::Popc | O::Bfind => vec![Type::U32, ty],
        O::Abs | O::Neg | O::Not | O::Cnot | O::Brev => vec![ty; 2],
        _ => vec![ty; 3],
    }
}

fn select(instruction: &Instruction, ty: Type) -> Result<Form, Reason> {
    let modifiers = instruction.modifiers;
    // The upper half of a 16-bit register is open, so that only whole words take the fast forms.
    let fast = match (ty.bits(), width_of(ty)) {
        (32, _) => fast32(instruction.opcode, ty, modifiers.has(M::Hi)),
        (64, Width::Double) => fast64(instruction.opcode, ty, modifiers.has(M::Hi)),
        _ => None,
    };
    let wide = match (instruction.opcode, ty) {
        (O::Mul, Type::U32) => Some(Op::MulWideU32),
        (O::Mul, Type::S32) => Some(Op::MulWideS32),
        (O::Mad, Type::U32) => Some(Op::MadWideU32),
        (O::Mad, Type::S32) => Some(Op::MadWideS32),
        _ => None,
    };
    if modifiers.has(M::Wide) {
        let lanes = Form::Lanes(for_type!(mad_wide, ty), 0);
        return Ok(wide.map_or(lanes, Form::Fast));
    }
    match fast {
        Some(op) if !modifiers.has(M::Sat) => Ok(Form::Fast(op)),
        _ => lanes(instruction, ty),
    }
}

fn fast32(opcode: O, ty: Type, high: bool) -> Option<Op> {
    let signed = ty.is_signed();
    Some(match opcode {
        O::Add => Op::Add32,
        O::Sub => Op::Sub32,
        O::Mul if !high => Op::MulLow32,
        O::Mul if !signed => Op::MulHighU32,
        O::Mad if !high => Op::MadLow32,
        O::Div if !signed => Op::DivU32,
        O::Rem if !signed => Op::RemU32,
        O::Min => {
            if signed {
                Op::MinS32
            } else {
                Op::MinU32
            }
        }
        O::Max => {
            if signed {
                Op::MaxS32
            } else {
                Op::MaxU32
            }
        }
        O::Neg => Op::Neg32,
        O::And => Op::And32,
        O::Or => Op::Or32,
        O::Xor => Op::Xor32,
        O::Not => Op::Not32,
        O::Shl => Op::Shl32,
        O::Shr => {
            if signed {
                Op::ShrS32
            } else {
                Op::ShrU32
            }
        }
        _ => return None,
    })
}

fn fast64(opcode: O, ty: Type, high: bool) -> Option<Op> {
    Some(match opcode {
        O::Add => Op::Add64,
        O::Sub => Op::Sub64,
        O::Mul if !high => Op::MulLow64,
        O::Mad if !high => Op::MadLow64,
        O::And => Op::And64,
        O::Or => Op::Or64,
        O::Xor => Op::Xor64,
        O::Shl => Op::Shl64,
        O::Shr => {
            if ty.is_signed() {
                Op::ShrS64
            } else {
                Op::ShrU64
            }
        }
        _ => return None,
    })
}

fn lanes(instruction: &Instruction, ty: Type) -> Result<Form, Reason> {
    let has = |modifier| instruction.modifiers.has(modifier);
    let function = match instruction.opcode {
        O::Add if has(M::Sat) => for_type!(add_saturating, ty),
        O::Sub if has(M::Sat) => for_type!(sub_saturating, ty),
        O::Add => for_type!(add, ty),
        O::Sub => for_type!(sub, ty),
        O::Mul if has(M::Hi) => for_type!(mul_high, ty),
        O::Mul => for_type!(mul_low, ty),
        O::Mad if has(M::Hi) => for_type!(mad_high, ty),
        O::Mad => for_type!(mad_low, ty),
        O::Mul24 | O::Mad24 if has(M::Hi) => for_type!(mad24_high, ty),
        O::Mul24 | O::Mad24 => for_type!(mad24_low, ty),
        O::Div => for_type!(div, ty),
        O::Rem => for_type!(rem, ty),
        O::Min => for_type!(min, ty),
        O::Max => for_type!(max, ty),
        O::Abs => for_type!(abs, ty),
        O::Neg => for_type!(neg, ty),
        O::And => for_type!(and, ty),
        O::Or => for_type!(or, ty),
        O::Xor => for_type!(xor, ty),
        O::Not => for_type!(not, ty),
        O::Cnot => for_type!(cnot, ty),
        O::Shl => for_type!(shl, ty),
        O::Shr => for_type!(shr, ty),
        O::Bfe => for_type!(bfe, ty),
        O::Bfi => return Ok(Form::Lanes(integer::bfi, u64::from(ty.bits()))),
        O::Bfind => {
            return Ok(Form::Lanes(for_type!(bfind, ty), u64::from(has(M::ShiftAmount))));
        }
        O::Brev => for_type!(brev, ty),
        O::Clz => for_type!(clz, ty),
        O::Popc => for_type!(popc, ty),
        O::Prmt => integer::prmt,
        O::Shf => {
            let constant = u64::from(has(M::R)) | u64::from(has(M::Clamp)) << 1;
            return Ok(Form::Lanes(integer::funnel, constant));
        }
        other => return Err(format!("{other} of .{ty}")),
    };
    Ok(Form::Lanes(function, 0))
}
