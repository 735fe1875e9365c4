//! Relations of comparisons, and the operations that test them.

use retrograph_ptx::ast::{Instruction, Modifier as M, Type};

use crate::compare::{HalfComparison, Outcomes};
use crate::decode::Reason;
use crate::decode::half::is_bf16;
use crate::operation::Comparison;

pub(super) const RELATIONS: &[M] = &[
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

/// A comparison operation: the test, whether the operands are swapped, and whether the result is
/// inverted.
pub(super) struct Test {
    pub(super) test: Comparison,
    pub(super) swapped: bool,
    pub(super) inverted: bool,
}

/// `setp` or `set` on values of one type.
#[derive(Clone, Copy)]
pub(super) struct Relation {
    /// The modifier.
    pub(super) relation: M,
    /// The type of the operands.
    pub(super) ty: Type,
    /// `.ftz`.
    pub(super) flush: bool,
}

impl Relation {
    pub(super) fn of(instruction: &Instruction, ty: Type) -> Result<Self, Reason> {
        let relation = instruction.modifiers.first_of(RELATIONS);
        let relation = relation.ok_or_else(|| "a comparison without a relation".to_owned())?;
        Ok(Self { relation, ty, flush: instruction.modifiers.has(M::Ftz) })
    }

    /// The comparison of f16 or bf16 values: the lower or upper ones of packed registers.
    pub(super) fn halves(self, upper: bool) -> HalfComparison {
        let outcomes = outcomes_of(self.relation);
        HalfComparison { bf16: is_bf16(self.ty), flush: self.flush, upper, outcomes }
    }
}

/// The comparison operation, if whole registers of the type have one for the relation.
pub(super) fn operation(relation: M, ty: Type) -> Option<Test> {
    use Comparison as C;
    let signed = ty.is_signed();
    let (equal, less, less_equal) = match (ty, ty.bits()) {
        (Type::F32, _) => (C::EqualF32, C::LessF32, Some(C::LessEqualF32)),
        (Type::F64, _) => (C::EqualF64, C::LessF64, Some(C::LessEqualF64)),
        (_, 32) => (C::Equal32, if signed { C::LessS32 } else { C::LessU32 }, None),
        (_, 64) => (C::Equal64, if signed { C::LessS64 } else { C::LessU64 }, None),
        _ => return None,
    };
    let test = |test, swapped, inverted| Some(Test { test, swapped, inverted });
    match (relation, less_equal) {
        (M::Eq, _) => test(equal, false, false),
        // For floats, `ne` is false for NaNs, and `neu` is the opposite of `eq`.
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

/// The outcomes of a comparison for which a relation is true.
pub(super) fn outcomes_of(relation: M) -> Outcomes {
    let [less, equal, greater, unordered] = match relation {
        M::Eq => [false, true, false, false],
        M::Ne => [true, false, true, false],
        M::Lt | M::Lo => [true, false, false, false],
        M::Le | M::Ls => [true, true, false, false],
        M::Gt | M::Hi => [false, false, true, false],
        M::Ge | M::Hs => [false, true, true, false],
        M::Equ => [false, true, false, true],
        M::Neu => [true, false, true, true],
        M::Ltu => [true, false, false, true],
        M::Leu => [true, true, false, true],
        M::Gtu => [false, false, true, true],
        M::Geu => [false, true, true, true],
        M::Num => [true, true, true, false],
        _ => [false, false, false, true],
    };
    Outcomes { less, equal, greater, unordered }
}
