//! Operators on values.

use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Rem, Shl, Shr, Sub};

use super::kernel::Emit;
use super::scalar::{Arg, Integer, Scalar};
use super::value::Value;
use crate::ast::{Modifier, Opcode, Type};

/// The modifiers of an operation: `float` or `integer`, by type.
fn by_kind(
    ty: Type,
    float: &'static [Modifier],
    integer: &'static [Modifier],
) -> &'static [Modifier] {
    if ty.is_float() { float } else { integer }
}

/// The untyped type of the same size, which logic instructions need.
fn bits_of(ty: Type) -> Type {
    if ty.size() == 8 { Type::B64 } else { Type::B32 }
}

impl<'k, T: Scalar> Value<'k, T> {
    /// The result if both operands are known. NaN is not folded, because the hardware chooses its
    /// bits.
    #[expect(clippy::eq_op, reason = "only NaN differs from itself")]
    fn folded(self, right: Self, fold: impl FnOnce(T, T) -> Option<T>) -> Option<Self>
    where
        T: PartialEq,
    {
        let result = fold(self.known()?, right.known()?)?;
        (result == result).then(|| self.kernel().constant(result))
    }

    /// Whether the value is the integer constant `bits`. False for floats, because even x + 0 may
    /// change a float.
    fn is_integer(self, bits: u64) -> bool {
        !T::TYPE.is_float() && self.known().is_some_and(|known| known.to_bits() == bits)
    }

    /// An addition or multiplication, with a constant operand on the right.
    #[track_caller]
    fn commuting(self, opcode: Opcode, modifiers: &[Modifier], right: Self) -> Self {
        let swap = self.known().is_some() && right.known().is_none();
        let (left, right) = if swap { (right, self) } else { (self, right) };
        left.binary(opcode, modifiers, right)
    }
}

impl<'k, T: Scalar + PartialEq, R: Arg<'k, T>> Add<R> for Value<'k, T> {
    type Output = Self;

    #[track_caller]
    fn add(self, right: R) -> Self {
        let right = right.into_value(self.kernel());
        match self.folded(right, |a, b| Some(a.fold_add(b))) {
            Some(folded) => folded,
            None if right.is_integer(0) => self,
            None if self.is_integer(0) => right,
            None => self.commuting(Opcode::Add, by_kind(T::TYPE, &[Modifier::Rn], &[]), right),
        }
    }
}

impl<'k, T: Scalar + PartialEq, R: Arg<'k, T>> Sub<R> for Value<'k, T> {
    type Output = Self;

    #[track_caller]
    fn sub(self, right: R) -> Self {
        let right = right.into_value(self.kernel());
        match self.folded(right, |a, b| Some(a.fold_sub(b))) {
            Some(folded) => folded,
            None if right.is_integer(0) => self,
            None => self.binary(Opcode::Sub, by_kind(T::TYPE, &[Modifier::Rn], &[]), right),
        }
    }
}

impl<'k, T: Scalar + PartialEq, R: Arg<'k, T>> Mul<R> for Value<'k, T> {
    type Output = Self;

    #[track_caller]
    fn mul(self, right: R) -> Self {
        let right = right.into_value(self.kernel());
        let modifiers = by_kind(T::TYPE, &[Modifier::Rn], &[Modifier::Lo]);
        match self.folded(right, |a, b| Some(a.fold_mul(b))) {
            Some(folded) => folded,
            None if right.is_integer(1) => self,
            None if self.is_integer(1) => right,
            None => self.commuting(Opcode::Mul, modifiers, right),
        }
    }
}

impl<'k, T: Scalar + PartialEq, R: Arg<'k, T>> Div<R> for Value<'k, T> {
    type Output = Self;

    /// Correctly rounded for floats; towards zero for integers.
    #[track_caller]
    fn div(self, right: R) -> Self {
        let right = right.into_value(self.kernel());
        match self.folded(right, |a, b| a.fold_div(b)) {
            Some(folded) => folded,
            None if right.is_integer(1) => self,
            None => self.binary(Opcode::Div, by_kind(T::TYPE, &[Modifier::Rn], &[]), right),
        }
    }
}

impl<'k, T: Integer, R: Arg<'k, T>> Rem<R> for Value<'k, T> {
    type Output = Self;

    #[track_caller]
    fn rem(self, right: R) -> Self {
        self.binary(Opcode::Rem, &[], right.into_value(self.kernel()))
    }
}

impl<T: Scalar> Neg for Value<'_, T> {
    type Output = Self;

    /// The negation. An unsigned integer wraps around.
    #[track_caller]
    fn neg(self) -> Self {
        if let Some(known) = self.known() {
            // Negating a float, zero included, flips only the sign bit.
            let sign = 1 << (T::TYPE.bits() - 1);
            let negated = if T::TYPE.is_float() {
                T::from_bits(known.to_bits() ^ sign)
            } else {
                T::from_bits(T::ZERO).fold_sub(known)
            };
            return self.kernel().constant(negated);
        }
        match T::TYPE {
            Type::U32 | Type::U64 => {
                let zero = self.kernel().constant(T::from_bits(0));
                zero.binary(Opcode::Sub, &[], self)
            }
            _ => self.unary(Opcode::Neg, &[]),
        }
    }
}

impl<T: Integer> Not for Value<'_, T> {
    type Output = Self;

    #[track_caller]
    fn not(self) -> Self {
        let (kernel, operands) = (self.kernel(), vec![self.operand()]);
        let types = &[bits_of(T::TYPE)];
        let emit = Emit { opcode: Opcode::Not, modifiers: &[], types, operands };
        Self::from_register(kernel, kernel.compute(T::TYPE, emit))
    }
}

macro_rules! logic {
    ($trait:ident, $method:ident, $opcode:ident) => {
        impl<'k, T: Integer, R: Arg<'k, T>> $trait<R> for Value<'k, T> {
            type Output = Self;

            #[track_caller]
            fn $method(self, right: R) -> Self {
                let right = right.into_value(self.kernel());
                self.binary_as(Opcode::$opcode, &[], bits_of(T::TYPE), right.operand())
            }
        }
    };
}

logic!(BitAnd, bitand, And);
logic!(BitOr, bitor, Or);
logic!(BitXor, bitxor, Xor);

impl<'k, T: Integer, R: Arg<'k, u32>> Shl<R> for Value<'k, T> {
    type Output = Self;

    /// A left shift; 0 if the amount is the width or more.
    #[track_caller]
    fn shl(self, amount: R) -> Self {
        let amount = amount.into_value(self.kernel());
        if amount.is_known(0) {
            return self;
        }
        self.binary_as(Opcode::Shl, &[], bits_of(T::TYPE), amount.operand())
    }
}

impl<'k, T: Integer, R: Arg<'k, u32>> Shr<R> for Value<'k, T> {
    type Output = Self;

    /// A right shift, arithmetic for signed integers. By the width or more it returns 0, or -1 for
    /// a negative number.
    #[track_caller]
    fn shr(self, amount: R) -> Self {
        let amount = amount.into_value(self.kernel());
        if amount.is_known(0) {
            return self;
        }
        self.binary_as(Opcode::Shr, &[], T::TYPE, amount.operand())
    }
}

/// Operators with a Rust number on the left.
macro_rules! left {
    ($($ty:ident)*) => { $(
        left!(@ $ty Add add);
        left!(@ $ty Sub sub);
        left!(@ $ty Mul mul);
        left!(@ $ty Div div);
    )* };
    (@ $ty:ident $trait:ident $method:ident) => {
        impl<'k> $trait<Value<'k, $ty>> for $ty {
            type Output = Value<'k, $ty>;

            #[track_caller]
            fn $method(self, right: Value<'k, $ty>) -> Value<'k, $ty> {
                right.kernel().constant(self).$method(right)
            }
        }
    };
}

left!(f32 f64 u32 i32 u64 i64);
