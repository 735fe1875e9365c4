//! Comparisons, and what selects by them.

use retrograph_ptx::ast::{Instruction, Modifier as M, Opcode as O, Operand, Type};

use super::arithmetic::for_type;
use super::half::{is_brain, is_half, is_packed};
use super::{Decoder, Op, Reason, Slot, Width, only, operands, type_of, width_of};
use crate::exec::float::{d, f, flush};
use crate::exec::half;
use crate::exec::integer::LaneFunction;
use crate::exec::lanes::encode_parts;

const RELATIONS: &[M] = &[
    M::Eq,
    M::Ne,
    M::Lt,
    M::Le,
    M::Gt,
    M::Ge,
    M::Lo,
    M::Ls,
    M::Hi,
    M::Hs,
    M::Equ,
    M::Neu,
    M::Ltu,
    M::Leu,
    M::Gtu,
    M::Geu,
    M::Num,
    M::Nan,
];

/// A comparison as the interpreter has it.
struct Test {
    op: Op,
    swapped: bool,
    inverted: bool,
}

impl Decoder<'_> {
    /// `setp`, `set`, `selp`, `slct` and `testp`.
    pub(super) fn comparison(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        match instruction.opcode {
            O::Setp => self.set_predicate(instruction),
            O::Set => self.set(instruction),
            O::Selp => self.select(instruction),
            O::Slct => self.select_by_sign(instruction),
            _ => self.test_property(instruction),
        }
    }

    /// Emits `to = a relation b`.
    fn compare(
        &mut self,
        instruction: &Instruction,
        (to, a, b): (Slot, Slot, Slot),
        ty: Type,
    ) -> Result<(), Reason> {
        let relation = instruction.modifiers.first_of(RELATIONS);
        let relation = relation.ok_or_else(|| "a comparison without a relation".to_owned())?;
        let flushed = instruction.modifiers.has(M::Ftz);
        if is_half(ty) {
            let code = half_code(relation, ty, flushed);
            self.emit_lanes(half::compare, code, to, &[a, b]);
            return Ok(());
        }
        if !flushed && let Some(test) = fast(relation, ty) {
            let (a, b) = if test.swapped { (b, a) } else { (a, b) };
            let invert = if test.inverted { u32::MAX } else { 0 };
            self.emit(test.op, &[to], &[a, b], invert);
            return Ok(());
        }
        let (function, outcomes): (LaneFunction, u64) = if ty.is_float() {
            let function = match (ty, flushed) {
                (Type::F32, true) => compare_f32_flushed,
                (Type::F32, false) => compare_f32,
                (Type::F64, _) => compare_f64,
                _ => return Err(format!("comparisons of .{ty}")),
            };
            (function, outcomes_of(relation))
        } else {
            // Unsigned comparisons have words of their own.
            (for_type!(compare, ty), outcomes_of(relation) & 7)
        };
        self.emit_lanes(function, outcomes, to, &[a, b]);
        Ok(())
    }

    fn set_predicate(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        let combine = instruction.modifiers.first_of(&[M::And, M::Or, M::Xor]);
        let allowed: Vec<M> =
            RELATIONS.iter().copied().chain([M::And, M::Or, M::Xor, M::Ftz]).collect();
        only(instruction, &allowed)?;
        let ty = type_of(instruction)?;
        let [first, a, b, rest @ ..] = &instruction.operands[..] else {
            return Err("too few operands".to_owned());
        };
        let (to, complement) = self.write_pair(first, Type::Pred)?;
        let (a, b) = (self.read(a, ty)?, self.read(b, ty)?);
        let other = match (combine, rest) {
            (Some(_), [operand]) => Some(self.read(operand, Type::Pred)?),
            (None, []) => None,
            _ => return Err(format!("{} operands", instruction.operands.len())),
        };
        if other.is_none() && complement.is_none() {
            return self.compare(instruction, (to, a, b), ty);
        }
        // Both results are made before either is written, which may overwrite an operand. Of packed
        // halves the second result is that of the upper ones, of others the opposite.
        let outcome = self.temporary(Width::Predicate);
        self.compare(instruction, (outcome, a, b), ty)?;
        let inverse = self.temporary(Width::Predicate);
        if is_packed(ty) {
            self.compare_upper(instruction, (inverse, a, b), ty)?;
        } else {
            self.emit(Op::PredicateOr, &[inverse], &[outcome, outcome], u32::MAX);
        }
        self.combine(instruction, outcome, other);
        self.combine(instruction, inverse, other);
        self.emit(Op::PredicateOr, &[to], &[outcome, outcome], 0);
        if let Some(complement) = complement {
            self.emit(Op::PredicateOr, &[complement], &[inverse, inverse], 0);
        }
        Ok(())
    }

    /// The comparison of the upper ones of packed halves.
    fn compare_upper(
        &mut self,
        instruction: &Instruction,
        (to, a, b): (Slot, Slot, Slot),
        ty: Type,
    ) -> Result<(), Reason> {
        let relation = instruction.modifiers.first_of(RELATIONS);
        let relation = relation.ok_or_else(|| "a comparison without a relation".to_owned())?;
        let code = half_code(relation, ty, instruction.modifiers.has(M::Ftz)) | 1 << 10;
        self.emit_lanes(half::compare, code, to, &[a, b]);
        Ok(())
    }

    fn set(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        let combining = [M::And, M::Or, M::Xor];
        let allowed: Vec<M> = RELATIONS.iter().copied().chain([M::Ftz]).chain(combining).collect();
        only(instruction, &allowed)?;
        let [to_type, from_type] = instruction.types[..] else {
            return Err("without two types".to_owned());
        };
        let [to, a, b, rest @ ..] = &instruction.operands[..] else {
            return Err("too few operands".to_owned());
        };
        let to = self.write(to, to_type)?;
        let (a, b) = (self.read(a, from_type)?, self.read(b, from_type)?);
        let with = match rest {
            [] => None,
            [operand, ..] => Some(self.read(operand, Type::Pred)?),
        };
        let outcome = self.temporary(Width::Predicate);
        self.compare(instruction, (outcome, a, b), from_type)?;
        self.combine(instruction, outcome, with);
        let yes = self.constant(truth(to_type), Width::Word);
        let no = self.constant(0, Width::Word);
        if !is_packed(from_type) {
            self.emit(Op::Select32, &[to], &[yes, no, outcome], 0);
            return Ok(());
        }
        let upper = self.temporary(Width::Predicate);
        self.compare_upper(instruction, (upper, a, b), from_type)?;
        self.combine(instruction, upper, with);
        let parts = [outcome, upper].map(|outcome| {
            let part = self.temporary(Width::Word);
            self.emit(Op::Select32, &[part], &[yes, no, outcome], 0);
            part
        });
        self.emit(Op::Pack, &[to], &parts, encode_parts(2, 16));
        Ok(())
    }

    /// Combines an outcome with another predicate as the modifiers say.
    fn combine(&mut self, instruction: &Instruction, outcome: Slot, with: Option<Slot>) {
        let op = match instruction.modifiers.first_of(&[M::And, M::Or, M::Xor]) {
            Some(M::And) => Op::PredicateAnd,
            Some(M::Or) => Op::PredicateOr,
            _ => Op::PredicateXor,
        };
        if let Some(with) = with {
            self.emit(op, &[outcome], &[outcome, with], 0);
        }
    }

    fn select(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        only(instruction, &[])?;
        let ty = type_of(instruction)?;
        let [to, a, b, predicate] = operands::<4>(instruction)?;
        let to = self.write(to, ty)?;
        let from = [self.read(a, ty)?, self.read(b, ty)?, self.read(predicate, Type::Pred)?];
        self.emit(select_op(ty), &[to], &from, 0);
        Ok(())
    }

    fn select_by_sign(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        only(instruction, &[M::Ftz])?;
        let [ty, by] = instruction.types[..] else {
            return Err("without two types".to_owned());
        };
        let [to, a, b, sign] = operands::<4>(instruction)?;
        let to = self.write(to, ty)?;
        let (a, b, sign) = (self.read(a, ty)?, self.read(b, ty)?, self.read(sign, by)?);
        let outcome = self.temporary(Width::Predicate);
        let zero = self.constant(0, Width::Word);
        match by {
            Type::S32 => self.emit(Op::LessS32, &[outcome], &[sign, zero], u32::MAX),
            // A flushed operand compares with zero as −0 or +0 does, which is as 0 ≤ 0.
            Type::F32 if instruction.modifiers.has(M::Ftz) => {
                self.emit_lanes(compare_f32_flushed, outcomes_of(M::Ge), outcome, &[sign, zero]);
            }
            Type::F32 => self.emit(Op::LessEqualF32, &[outcome], &[zero, sign], 0),
            other => return Err(format!("selection by .{other}")),
        }
        self.emit(select_op(ty), &[to], &[a, b, outcome], 0);
        Ok(())
    }

    fn test_property(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        const CLASSES: &[M] =
            &[M::Finite, M::Infinite, M::Number, M::NotANumber, M::Normal, M::Subnormal];
        only(instruction, CLASSES)?;
        let ty = type_of(instruction)?;
        let [to, from]: &[Operand; 2] = operands::<2>(instruction)?;
        let (to, from) = (self.write(to, Type::Pred)?, self.read(from, ty)?);
        let class = CLASSES.iter().position(|&class| instruction.modifiers.has(class));
        let class = class.ok_or_else(|| "a test without a property".to_owned())?;
        let function = match ty {
            Type::F32 => property_f32,
            Type::F64 => property_f64,
            other => return Err(format!("tests of .{other}")),
        };
        self.emit_lanes(function, class as u64, to, &[from]);
        Ok(())
    }
}

/// What [`half::compare`] is told.
fn half_code(relation: M, ty: Type, flushed: bool) -> u64 {
    outcomes_of(relation) | u64::from(is_brain(ty)) << 8 | u64::from(flushed) << 9
}

/// What `set` gives for true, in 16 bits for packed results.
fn truth(to: Type) -> u64 {
    match to {
        Type::F32 => u64::from(1.0f32.to_bits()),
        Type::F16 | Type::F16x2 => 0x3c00,
        Type::Bf16 | Type::Bf16x2 => 0x3f80,
        _ => 0xffff_ffff,
    }
}

fn select_op(ty: Type) -> Op {
    if width_of(ty) == Width::Double { Op::Select64 } else { Op::Select32 }
}

fn fast(relation: M, ty: Type) -> Option<Test> {
    let signed = ty.is_signed();
    let (equal, less, less_equal) = match (ty, ty.bits()) {
        (Type::F32, _) => (Op::EqualF32, Op::LessF32, Some(Op::LessEqualF32)),
        (Type::F64, _) => (Op::EqualF64, Op::LessF64, Some(Op::LessEqualF64)),
        (_, 32) => (Op::Equal32, if signed { Op::LessS32 } else { Op::LessU32 }, None),
        (_, 64) => (Op::Equal64, if signed { Op::LessS64 } else { Op::LessU64 }, None),
        _ => return None,
    };
    let test = |op, swapped, inverted| Some(Test { op, swapped, inverted });
    match (relation, less_equal) {
        (M::Eq, _) => test(equal, false, false),
        // Of floats, `ne` is false for NaNs, and `neu` is the opposite of `eq`.
        (M::Ne, None) | (M::Neu, Some(_)) => test(equal, false, true),
        (M::Lt | M::Lo, _) => test(less, false, false),
        (M::Gt | M::Hi, _) => test(less, true, false),
        (M::Le | M::Ls, None) => test(less, true, true),
        (M::Ge | M::Hs, None) => test(less, false, true),
        (M::Le, Some(op)) => test(op, false, false),
        (M::Ge, Some(op)) => test(op, true, false),
        (M::Geu, Some(_)) => test(less, false, true),
        (M::Leu, Some(_)) => test(less, true, true),
        (M::Gtu, Some(op)) => test(op, false, true),
        (M::Ltu, Some(op)) => test(op, true, true),
        _ => None,
    }
}

/// Which outcomes of a comparison make the relation true: bits for less, equal, greater and
/// unordered.
fn outcomes_of(relation: M) -> u64 {
    match relation {
        M::Eq => 0b0010,
        M::Ne => 0b0101,
        M::Lt | M::Lo => 0b0001,
        M::Le | M::Ls => 0b0011,
        M::Gt | M::Hi => 0b0100,
        M::Ge | M::Hs => 0b0110,
        M::Equ => 0b1010,
        M::Neu => 0b1101,
        M::Ltu => 0b1001,
        M::Leu => 0b1011,
        M::Gtu => 0b1100,
        M::Geu => 0b1110,
        M::Num => 0b0111,
        _ => 0b1000,
    }
}

fn outcome(a: f64, b: f64, outcomes: u64) -> u64 {
    let bit = a.partial_cmp(&b).map_or(3, |order| order as i8 as i64 + 1);
    outcomes >> bit & 1
}

fn compare_f32([a, b, _]: [u64; 3], outcomes: u64) -> u64 {
    outcome(f64::from(f(a as u32)), f64::from(f(b as u32)), outcomes)
}

fn compare_f32_flushed([a, b, _]: [u64; 3], outcomes: u64) -> u64 {
    let value = |bits: u64| f64::from(f(flush(bits as u32)));
    outcome(value(a), value(b), outcomes)
}

fn compare_f64([a, b, _]: [u64; 3], outcomes: u64) -> u64 {
    outcome(d(a), d(b), outcomes)
}

macro_rules! property {
    ($name:ident, $float:ident, $bits:ident) => {
        /// The properties in the order of the modifiers above.
        fn $name([a, _, _]: [u64; 3], class: u64) -> u64 {
            let x = $float::from_bits(a as $bits);
            u64::from(match class {
                0 => x.is_finite(),
                1 => x.is_infinite(),
                2 => !x.is_nan(),
                3 => x.is_nan(),
                // Hardware counts zeros among the normal numbers.
                4 => x.is_normal() || x == 0.0,
                _ => x.is_subnormal(),
            })
        }
    };
}
property!(property_f32, f32, u32);
property!(property_f64, f64, u64);
