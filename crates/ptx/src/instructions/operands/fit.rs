//! Checks whether values fit an operand type.

use crate::ast::{Immediate, SpecialRegister, Type, TypeKind};

/// The type of a register that holds elements of a type. Packed 32-bit types, and types without
/// registers of their own, are untyped.
pub(super) fn untyped(ty: Type) -> Type {
    match ty {
        Type::F16x2 | Type::Bf16x2 | Type::Tf32 => Type::B32,
        other => other,
    }
}

/// Whether `mov` reads a special register as a value of type `ty`.
pub(super) fn reads(special: SpecialRegister, ty: Type) -> bool {
    let narrow = special.is_extent() || special == SpecialRegister::GridId;
    let size = special.ty().size();
    !ty.is_float()
        && (size == ty.size()
            || narrow && ty.size() == 2 && ty != Type::B16
            || special == SpecialRegister::GridId && ty.size() == 4)
}

/// Whether a register may hold an operand of type `ty`: the sizes are equal, or the register is
/// wider if that is allowed, and floats do not mix with integers. Two packed floats have registers
/// of their own type or untyped ones.
pub(super) fn holds(register: Type, ty: Type, wide: bool) -> bool {
    let (a, b) = (register.kind(), ty.kind());
    if a == TypeKind::Predicate || b == TypeKind::Predicate {
        return a == b;
    }
    let same_kind =
        a == TypeKind::Untyped || b == TypeKind::Untyped || register.is_float() == ty.is_float();
    let packed = matches!(ty, Type::F16x2 | Type::Bf16x2);
    if packed && a != TypeKind::Untyped && register != ty {
        return false;
    }
    let any = !ty.is_float() || a == TypeKind::Untyped;
    let wider = wide && any && register.size() > ty.size();
    same_kind && (register.size() == ty.size() || wider)
}

/// Whether a constant is one of `ty`.
pub(super) fn fits(immediate: Immediate, ty: Type) -> bool {
    match (immediate, ty.kind()) {
        (Immediate::Integer(_), TypeKind::Predicate) => true,
        (Immediate::Integer(_), TypeKind::Float) => false,
        (Immediate::Integer(value), _) => {
            let bits = ty.bits();
            bits == 64 || (-(1i64 << (bits - 1))..1i64 << bits).contains(&value)
        }
        (Immediate::F32(_), TypeKind::Float | TypeKind::Untyped) => ty.bits() == 32,
        (Immediate::F64(_), TypeKind::Float | TypeKind::Untyped) => ty.bits() == 64,
        _ => false,
    }
}
