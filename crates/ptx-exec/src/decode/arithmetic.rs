//! Integer arithmetic and logic.

use retrograph_ptx::ast::{Immediate, Instruction, Modifier as M, Opcode as O, Operand, Type};

use super::{Decoder, Reason, VirtualRegister, Width, only, type_of, width_of};
use crate::integer;
use crate::lane_function::LaneFunction;
use crate::operation::{Integer, Predicate};

/// Instantiates a generic function for an integer type.
macro_rules! instance {
    ($($function:ident)::+, $ty:expr) => {
        match $ty {
            Type::U8 | Type::B8 => $($function)::+::<u8>,
            Type::S8 => $($function)::+::<i8>,
            Type::U16 | Type::B16 => $($function)::+::<u16>,
            Type::S16 => $($function)::+::<i16>,
            Type::S32 => $($function)::+::<i32>,
            Type::U64 | Type::B64 => $($function)::+::<u64>,
            Type::S64 => $($function)::+::<i64>,
            _ => $($function)::+::<u32>,
        }
    };
}
pub(super) use instance;

/// Selects the instance of a function of `integer` for a type.
macro_rules! for_type {
    ($function:ident, $ty:expr) => {
        LaneFunction::Plain($crate::decode::arithmetic::instance!($crate::integer::$function, $ty))
    };
}
pub(super) use for_type;

/// The decoded form of an instruction.
enum Form {
    /// An operation on whole registers.
    Operation(Integer<VirtualRegister>),
    /// A per-lane function.
    Function(LaneFunction),
}

impl Decoder<'_> {
    /// Integer and bit instructions except comparisons and conversions.
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
        match select(instruction, ty, to, &from)? {
            Form::Operation(operation) => self.emit(operation),
            Form::Function(function) => self.emit_lanes(function, to, &from),
        }
        Ok(())
    }

    fn predicate_logic(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        let to = self.write(&instruction.operands[0], Type::Pred)?;
        let a = self.read(&instruction.operands[1], Type::Pred)?;
        let second = instruction.operands.get(2);
        let b = second.map_or(Ok(a), |operand| self.read(operand, Type::Pred))?;
        let inverted = false;
        self.emit(match instruction.opcode {
            O::And => Predicate::And { d: to, a, b, inverted },
            O::Or => Predicate::Or { d: to, a, b, inverted },
            O::Xor => Predicate::Xor { d: to, a, b, inverted },
            O::Not => Predicate::Or { d: to, a, b: a, inverted: true },
            other => return Err(format!("{other} of predicates")),
        });
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
        self.emit_lanes(LaneFunction::Lop3 { table: *table as u8 }, to, &from);
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

fn select(
    instruction: &Instruction,
    ty: Type,
    d: VirtualRegister,
    from: &[VirtualRegister],
) -> Result<Form, Reason> {
    let modifiers = instruction.modifiers;
    if modifiers.has(M::Wide) {
        let function = Form::Function(for_type!(mad_wide, ty));
        return Ok(widening(instruction.opcode, ty, d, from).map_or(function, Form::Operation));
    }
    // The upper half of a 16-bit register is undefined, so only whole words have operations.
    let operation = match (ty.bits(), width_of(ty)) {
        (32, _) => operation32(instruction.opcode, ty, modifiers.has(M::Hi), d, from),
        (64, Width::Double) => operation64(instruction.opcode, ty, modifiers.has(M::Hi), d, from),
        _ => None,
    };
    match operation {
        Some(operation) if !modifiers.has(M::Sat) => Ok(Form::Operation(operation)),
        _ => function(instruction, ty).map(Form::Function),
    }
}

/// The operands of an operation, padded with its result.
pub(super) fn padded(d: VirtualRegister, from: &[VirtualRegister]) -> [VirtualRegister; 3] {
    std::array::from_fn(|index| from.get(index).copied().unwrap_or(d))
}

/// `mul.wide` and `mad.wide` of 32-bit integers.
fn widening(
    opcode: O,
    ty: Type,
    d: VirtualRegister,
    from: &[VirtualRegister],
) -> Option<Integer<VirtualRegister>> {
    use Integer as I;
    let [a, b, c] = padded(d, from);
    Some(match (opcode, ty) {
        (O::Mul, Type::U32) => I::MulWideU32 { d, a, b },
        (O::Mul, Type::S32) => I::MulWideS32 { d, a, b },
        (O::Mad, Type::U32) => I::MadWideU32 { d, a, b, c },
        (O::Mad, Type::S32) => I::MadWideS32 { d, a, b, c },
        _ => return None,
    })
}

fn operation32(
    opcode: O,
    ty: Type,
    high: bool,
    d: VirtualRegister,
    from: &[VirtualRegister],
) -> Option<Integer<VirtualRegister>> {
    use Integer as I;
    let [a, b, c] = padded(d, from);
    Some(match (opcode, ty.is_signed()) {
        (O::Add, _) => I::Add32 { d, a, b },
        (O::Sub, _) => I::Sub32 { d, a, b },
        (O::Mul, _) if !high => I::MulLow32 { d, a, b },
        (O::Mul, false) => I::MulHighU32 { d, a, b },
        (O::Mad, _) if !high => I::MadLow32 { d, a, b, c },
        (O::Div, false) => I::DivU32 { d, a, b },
        (O::Rem, false) => I::RemU32 { d, a, b },
        (O::Min, true) => I::MinS32 { d, a, b },
        (O::Min, false) => I::MinU32 { d, a, b },
        (O::Max, true) => I::MaxS32 { d, a, b },
        (O::Max, false) => I::MaxU32 { d, a, b },
        (O::Neg, _) => I::Neg32 { d, a },
        (O::And, _) => I::And32 { d, a, b },
        (O::Or, _) => I::Or32 { d, a, b },
        (O::Xor, _) => I::Xor32 { d, a, b },
        (O::Not, _) => I::Not32 { d, a },
        (O::Shl, _) => I::Shl32 { d, a, b },
        (O::Shr, true) => I::ShrS32 { d, a, b },
        (O::Shr, false) => I::ShrU32 { d, a, b },
        _ => return None,
    })
}

fn operation64(
    opcode: O,
    ty: Type,
    high: bool,
    d: VirtualRegister,
    from: &[VirtualRegister],
) -> Option<Integer<VirtualRegister>> {
    use Integer as I;
    let [a, b, c] = padded(d, from);
    Some(match (opcode, ty.is_signed()) {
        (O::Add, _) => I::Add64 { d, a, b },
        (O::Sub, _) => I::Sub64 { d, a, b },
        (O::Mul, _) if !high => I::MulLow64 { d, a, b },
        (O::Mad, _) if !high => I::MadLow64 { d, a, b, c },
        (O::And, _) => I::And64 { d, a, b },
        (O::Or, _) => I::Or64 { d, a, b },
        (O::Xor, _) => I::Xor64 { d, a, b },
        (O::Shl, _) => I::Shl64 { d, a, b },
        (O::Shr, true) => I::ShrS64 { d, a, b },
        (O::Shr, false) => I::ShrU64 { d, a, b },
        _ => return None,
    })
}

fn function(instruction: &Instruction, ty: Type) -> Result<LaneFunction, Reason> {
    let has = |modifier| instruction.modifiers.has(modifier);
    Ok(match instruction.opcode {
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
        O::Bfi if ty.bits() == 64 => LaneFunction::Plain(integer::bfi::<u64>),
        O::Bfi => LaneFunction::Plain(integer::bfi::<u32>),
        O::Bfind if has(M::ShiftAmount) => for_type!(bfind_shift_amount, ty),
        O::Bfind => for_type!(bfind, ty),
        O::Brev => for_type!(brev, ty),
        O::Clz => for_type!(clz, ty),
        O::Popc => for_type!(popc, ty),
        O::Prmt => LaneFunction::Plain(integer::prmt),
        O::Shf => LaneFunction::FunnelShift { right: has(M::R), clamp: has(M::Clamp) },
        other => return Err(format!("{other} of .{ty}")),
    })
}
