//! Register types of the builder.

use super::value::Value;
use super::var::Var;
use crate::ast::{Immediate, Type};

/// Constant folding, and the properties of a register type.
pub(super) mod sealed {
    use crate::ast::{Immediate, Type};

    /// Keeps [`super::Scalar`] to the types that registers have.
    pub trait Sealed: Copy {
        const TYPE: Type;
        const ZERO: u64;
        const ONE: u64;
        fn to_bits(self) -> u64;
        fn from_bits(bits: u64) -> Self;
        fn immediate(bits: u64) -> Immediate;
        fn fold_add(self, other: Self) -> Self;
        fn fold_sub(self, other: Self) -> Self;
        fn fold_mul(self, other: Self) -> Self;
        /// The quotient, if the device computes the same bits.
        fn fold_div(self, other: Self) -> Option<Self>;
    }
}

use sealed::Sealed;

/// A register type: `f32`, `f64`, `u32`, `i32`, `u64` or `i64`.
pub trait Scalar: Sealed + std::fmt::Debug + 'static {}

/// `f32` or `f64`.
pub trait Float: Scalar {}

/// `u32`, `i32`, `u64` or `i64`.
pub trait Integer: Scalar {}

/// A four-byte type, which warps can shuffle: `f32`, `u32` or `i32`.
pub trait Word: Scalar {}

macro_rules! scalar {
    (@integer $ty:ident, $kind:ident) => {
        impl Sealed for $ty {
            const TYPE: Type = Type::$kind;
            const ZERO: u64 = 0;
            const ONE: u64 = 1;
            fn to_bits(self) -> u64 {
                self as u64
            }
            fn from_bits(bits: u64) -> Self {
                bits as Self
            }
            fn immediate(bits: u64) -> Immediate {
                Immediate::Integer(Self::from_bits(bits) as i64)
            }
            fn fold_add(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            fn fold_sub(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }
            fn fold_mul(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            fn fold_div(self, other: Self) -> Option<Self> {
                self.checked_div(other)
            }
        }
        impl Scalar for $ty {}
        impl Integer for $ty {}
    };
    (@float $ty:ident, $kind:ident) => {
        impl Sealed for $ty {
            const TYPE: Type = Type::$kind;
            const ZERO: u64 = 0;
            const ONE: u64 = <$ty>::to_bits(1.0) as u64;
            fn to_bits(self) -> u64 {
                <$ty>::to_bits(self).into()
            }
            fn from_bits(bits: u64) -> Self {
                <$ty>::from_bits(bits as _)
            }
            fn immediate(bits: u64) -> Immediate {
                Immediate::$kind(bits as _)
            }
            fn fold_add(self, other: Self) -> Self {
                self + other
            }
            fn fold_sub(self, other: Self) -> Self {
                self - other
            }
            fn fold_mul(self, other: Self) -> Self {
                self * other
            }
            fn fold_div(self, other: Self) -> Option<Self> {
                Some(self / other)
            }
        }
        impl Scalar for $ty {}
        impl Float for $ty {}
    };
}

scalar!(@integer u32, U32);
scalar!(@integer i32, S32);
scalar!(@integer u64, U64);
scalar!(@integer i64, S64);
scalar!(@float f32, F32);
scalar!(@float f64, F64);

impl Word for f32 {}
impl Word for u32 {}
impl Word for i32 {}

/// An operand: a [`Value`], a [`Var`], or a Rust number, which becomes a constant.
pub trait Arg<'k, T: Scalar>: Copy {
    #[doc(hidden)]
    fn into_value(self, kernel: super::Kernel<'k>) -> Value<'k, T>;
}

impl<'k, T: Scalar> Arg<'k, T> for T {
    fn into_value(self, kernel: super::Kernel<'k>) -> Value<'k, T> {
        kernel.constant(self)
    }
}

impl<'k, T: Scalar> Arg<'k, T> for Value<'k, T> {
    fn into_value(self, _: super::Kernel<'k>) -> Value<'k, T> {
        self
    }
}

impl<'k, T: Scalar> Arg<'k, T> for Var<'k, T> {
    fn into_value(self, _: super::Kernel<'k>) -> Value<'k, T> {
        self.get()
    }
}
