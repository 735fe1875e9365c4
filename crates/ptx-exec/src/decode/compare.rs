//! Decoding of comparisons and selections.

mod relation;

use retrograph_ptx::ast::{Instruction, Modifier as M, Opcode as O, Operand, Type};

use self::relation::{RELATIONS, Relation, Test, operation, outcomes_of};
use super::arithmetic::instance;
use super::half::{is_half, is_packed};
use super::{Decoder, Reason, VirtualRegister, Width, only, operands, type_of, width_of};
use crate::compare::{self, FloatClass, Outcomes};
use crate::lane_function::LaneFunction;
use crate::operation::{Comparison, Function, Predicate};

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
        relation: Relation,
        to: VirtualRegister,
        a: VirtualRegister,
        b: VirtualRegister,
    ) -> Result<(), Reason> {
        let Relation { relation: modifier, ty, flush } = relation;
        if is_half(ty) {
            self.emit_lanes(LaneFunction::CompareHalf(relation.halves(false)), to, &[a, b]);
            return Ok(());
        }
        if !flush && let Some(Test { test, swapped, inverted }) = operation(modifier, ty) {
            let (a, b) = if swapped { (b, a) } else { (a, b) };
            self.emit(Predicate::Compare { d: to, a, b, test, inverted });
            return Ok(());
        }
        let function: fn([u64; 3], Outcomes) -> u64 = match (ty, flush) {
            (Type::F32, true) => compare::flushed_floats,
            (Type::F32, false) => compare::floats,
            (Type::F64, _) => compare::doubles,
            _ if ty.is_float() => return Err(format!("comparisons of .{ty}")),
            _ => instance!(compare::integers, ty),
        };
        let outcomes = outcomes_of(modifier);
        self.emit_lanes(LaneFunction::Compare { function, outcomes }, to, &[a, b]);
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
        let relation = Relation::of(instruction, ty)?;
        let (a, b) = (self.read(a, ty)?, self.read(b, ty)?);
        let other = match (combine, rest) {
            (Some(_), [operand]) => Some(self.read(operand, Type::Pred)?),
            (None, []) => None,
            _ => return Err(format!("{} operands", instruction.operands.len())),
        };
        if other.is_none() && complement.is_none() {
            return self.compare(relation, to, a, b);
        }
        // Both results are computed before either is written, because that may overwrite an
        // operand. For packed values, the second result belongs to the upper halves; otherwise it
        // is the opposite.
        let outcome = self.temporary(Width::Predicate);
        self.compare(relation, outcome, a, b)?;
        let inverse = self.temporary(Width::Predicate);
        if is_packed(ty) {
            self.compare_upper(relation, inverse, a, b);
        } else {
            self.emit(Predicate::Or { d: inverse, a: outcome, b: outcome, inverted: true });
        }
        self.combine(instruction, outcome, other);
        self.combine(instruction, inverse, other);
        self.copy(to, outcome);
        if let Some(complement) = complement {
            self.copy(complement, inverse);
        }
        Ok(())
    }

    /// Compares the upper values of packed registers.
    fn compare_upper(
        &mut self,
        relation: Relation,
        to: VirtualRegister,
        a: VirtualRegister,
        b: VirtualRegister,
    ) {
        self.emit_lanes(LaneFunction::CompareHalf(relation.halves(true)), to, &[a, b]);
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
        let relation = Relation::of(instruction, from_type)?;
        let to = self.write(to, to_type)?;
        let (a, b) = (self.read(a, from_type)?, self.read(b, from_type)?);
        let with = match rest {
            [] => None,
            [operand, ..] => Some(self.read(operand, Type::Pred)?),
        };
        let outcome = self.temporary(Width::Predicate);
        self.compare(relation, outcome, a, b)?;
        self.combine(instruction, outcome, with);
        let yes = self.constant(truth(to_type), Width::Word);
        let no = self.constant(0, Width::Word);
        if !is_packed(from_type) {
            self.emit(Predicate::Select32 { d: to, a: yes, b: no, predicate: outcome });
            return Ok(());
        }
        let upper = self.temporary(Width::Predicate);
        self.compare_upper(relation, upper, a, b);
        self.combine(instruction, upper, with);
        let [a, b] = [outcome, upper].map(|predicate| {
            let part = self.temporary(Width::Word);
            self.emit(Predicate::Select32 { d: part, a: yes, b: no, predicate });
            part
        });
        self.emit(Function::Pack2 { d: to, a, b, bits: 16 });
        Ok(())
    }

    /// Combines an outcome with another predicate according to the modifiers.
    fn combine(
        &mut self,
        instruction: &Instruction,
        outcome: VirtualRegister,
        with: Option<VirtualRegister>,
    ) {
        let Some(b) = with else { return };
        let (d, a, inverted) = (outcome, outcome, false);
        self.emit(match instruction.modifiers.first_of(&[M::And, M::Or, M::Xor]) {
            Some(M::And) => Predicate::And { d, a, b, inverted },
            Some(M::Or) => Predicate::Or { d, a, b, inverted },
            _ => Predicate::Xor { d, a, b, inverted },
        });
    }

    fn select(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        only(instruction, &[])?;
        let ty = type_of(instruction)?;
        let [to, a, b, predicate] = operands::<4>(instruction)?;
        let to = self.write(to, ty)?;
        let (a, b) = (self.read(a, ty)?, self.read(b, ty)?);
        let predicate = self.read(predicate, Type::Pred)?;
        self.emit(selection(ty, to, a, b, predicate));
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
            Type::S32 => self.emit(Predicate::Compare {
                d: outcome,
                a: sign,
                b: zero,
                test: Comparison::LessS32,
                inverted: true,
            }),
            // A flushed subnormal is a zero, for which `c ≥ 0` is true.
            Type::F32 if instruction.modifiers.has(M::Ftz) => {
                let outcomes = outcomes_of(M::Ge);
                let function =
                    LaneFunction::Compare { function: compare::flushed_floats, outcomes };
                self.emit_lanes(function, outcome, &[sign, zero]);
            }
            Type::F32 => self.emit(Predicate::Compare {
                d: outcome,
                a: zero,
                b: sign,
                test: Comparison::LessEqualF32,
                inverted: false,
            }),
            other => return Err(format!("selection by .{other}")),
        }
        self.emit(selection(ty, to, a, b, outcome));
        Ok(())
    }

    fn test_property(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        const CLASSES: &[(M, FloatClass)] = &[
            (M::Finite, FloatClass::Finite),
            (M::Infinite, FloatClass::Infinite),
            (M::Number, FloatClass::Number),
            (M::NotANumber, FloatClass::NotANumber),
            (M::Normal, FloatClass::Normal),
            (M::Subnormal, FloatClass::Subnormal),
        ];
        let allowed: Vec<M> = CLASSES.iter().map(|(modifier, _)| *modifier).collect();
        only(instruction, &allowed)?;
        let ty = type_of(instruction)?;
        let [to, from]: &[Operand; 2] = operands::<2>(instruction)?;
        let (to, from) = (self.write(to, Type::Pred)?, self.read(from, ty)?);
        let class = CLASSES.iter().find(|(modifier, _)| instruction.modifiers.has(*modifier));
        let (_, class) = *class.ok_or_else(|| "a test without a property".to_owned())?;
        let function: fn([u64; 3], FloatClass) -> u64 = match ty {
            Type::F32 => compare::float_has_class,
            Type::F64 => compare::double_has_class,
            other => return Err(format!("tests of .{other}")),
        };
        self.emit_lanes(LaneFunction::Class { function, class }, to, &[from]);
        Ok(())
    }
}

/// The result of `set` for true; 16 bits for packed results.
fn truth(to: Type) -> u64 {
    match to {
        Type::F32 => u64::from(1.0f32.to_bits()),
        Type::F16 | Type::F16x2 => 0x3c00,
        Type::Bf16 | Type::Bf16x2 => 0x3f80,
        _ => 0xffff_ffff,
    }
}

fn selection(
    ty: Type,
    d: VirtualRegister,
    a: VirtualRegister,
    b: VirtualRegister,
    predicate: VirtualRegister,
) -> Predicate<VirtualRegister> {
    if width_of(ty) == Width::Double {
        Predicate::Select64 { d, a, b, predicate }
    } else {
        Predicate::Select32 { d, a, b, predicate }
    }
}
