//! A value in a register, or a constant.

use std::marker::PhantomData;

use super::kernel::{Emit, Kernel};
use super::predicate::Pred;
use super::scalar::{Arg, Integer, Scalar};
use crate::ast::{Modifier, Opcode, Operand, RegisterId, Type};

/// The source of a value.
#[derive(Clone, Copy)]
pub(super) enum ValueSource {
    Register(RegisterId),
    /// A constant, as bits.
    Constant(u64),
}

/// An immutable value of type `T` of the kernel `'k`. [`super::Var`] is a mutable register.
#[derive(Clone, Copy)]
pub struct Value<'k, T> {
    kernel: Kernel<'k>,
    source: ValueSource,
    ty: PhantomData<T>,
}

impl<'k, T: Scalar> Value<'k, T> {
    pub(super) fn new(kernel: Kernel<'k>, source: ValueSource) -> Self {
        Self { kernel, source, ty: PhantomData }
    }

    pub(super) fn from_register(kernel: Kernel<'k>, register: RegisterId) -> Self {
        Self::new(kernel, ValueSource::Register(register))
    }

    /// The kernel that the value belongs to.
    pub fn kernel(self) -> Kernel<'k> {
        self.kernel
    }

    pub(super) fn source(self) -> ValueSource {
        self.source
    }

    /// The number, if the value is a constant.
    pub fn known(self) -> Option<T> {
        match self.source {
            ValueSource::Constant(bits) => Some(T::from_bits(bits)),
            ValueSource::Register(_) => None,
        }
    }

    /// The value as an operand.
    #[track_caller]
    pub(super) fn operand(self) -> Operand {
        if let ValueSource::Register(register) = self.source {
            self.kernel.check_open(register);
        }
        self.operand_unchecked()
    }

    pub(super) fn operand_unchecked(self) -> Operand {
        match self.source {
            ValueSource::Register(register) => Operand::Register(register),
            ValueSource::Constant(bits) => Operand::Immediate(T::immediate(bits)),
        }
    }

    /// The register that holds the value. A constant is moved into a new one.
    #[track_caller]
    pub(super) fn register(self) -> RegisterId {
        match self.source {
            ValueSource::Register(register) => {
                self.kernel.check_open(register);
                register
            }
            ValueSource::Constant(_) => {
                let operands = vec![self.operand_unchecked()];
                let types = &[T::TYPE];
                self.kernel
                    .compute(T::TYPE, Emit { opcode: Opcode::Mov, modifiers: &[], types, operands })
            }
        }
    }

    /// An instruction of type `T` with one source.
    #[track_caller]
    pub(super) fn unary(self, opcode: Opcode, modifiers: &[Modifier]) -> Self {
        let emit = Emit { opcode, modifiers, types: &[T::TYPE], operands: vec![self.operand()] };
        Self::from_register(self.kernel, self.kernel.compute(T::TYPE, emit))
    }

    /// An instruction of type `T` with two sources.
    #[track_caller]
    pub(super) fn binary(self, opcode: Opcode, modifiers: &[Modifier], right: Self) -> Self {
        self.binary_as(opcode, modifiers, T::TYPE, right.operand())
    }

    /// An instruction of type `ty` with two sources.
    #[track_caller]
    pub(super) fn binary_as(
        self,
        opcode: Opcode,
        modifiers: &[Modifier],
        ty: Type,
        right: Operand,
    ) -> Self {
        let operands = vec![self.operand(), right];
        let emit = Emit { opcode, modifiers, types: &[ty], operands };
        Self::from_register(self.kernel, self.kernel.compute(T::TYPE, emit))
    }

    #[track_caller]
    fn compare(self, comparison: Modifier, right: impl Arg<'k, T>) -> Pred<'k> {
        let operands = vec![self.operand(), right.into_value(self.kernel).operand()];
        let (modifiers, types) = (&[comparison], &[T::TYPE]);
        let emit = Emit { opcode: Opcode::Setp, modifiers, types, operands };
        Pred::new(self.kernel, self.kernel.compute(Type::Pred, emit))
    }

    /// Whether this is less than `right`; false if one is NaN.
    #[track_caller]
    pub fn lt(self, right: impl Arg<'k, T>) -> Pred<'k> {
        self.compare(Modifier::Lt, right)
    }

    /// Whether this is at most `right`; false if one is NaN.
    #[track_caller]
    pub fn le(self, right: impl Arg<'k, T>) -> Pred<'k> {
        self.compare(Modifier::Le, right)
    }

    /// Whether this is greater than `right`; false if one is NaN.
    #[track_caller]
    pub fn gt(self, right: impl Arg<'k, T>) -> Pred<'k> {
        self.compare(Modifier::Gt, right)
    }

    /// Whether this is at least `right`; false if one is NaN.
    #[track_caller]
    pub fn ge(self, right: impl Arg<'k, T>) -> Pred<'k> {
        self.compare(Modifier::Ge, right)
    }

    /// Whether this equals `right`; false if one is NaN.
    #[track_caller]
    pub fn eq(self, right: impl Arg<'k, T>) -> Pred<'k> {
        self.compare(Modifier::Eq, right)
    }

    /// Whether this differs from `right`; true if one is NaN, as in Rust.
    #[track_caller]
    pub fn ne(self, right: impl Arg<'k, T>) -> Pred<'k> {
        let unordered = if T::TYPE.is_float() { Modifier::Neu } else { Modifier::Ne };
        self.compare(unordered, right)
    }

    /// The lesser of two values; the other one if one is NaN.
    #[track_caller]
    pub fn min(self, right: impl Arg<'k, T>) -> Self {
        self.binary(Opcode::Min, &[], right.into_value(self.kernel))
    }

    /// The greater of two values; the other one if one is NaN.
    #[track_caller]
    pub fn max(self, right: impl Arg<'k, T>) -> Self {
        self.binary(Opcode::Max, &[], right.into_value(self.kernel))
    }
}

impl<'k, T: Integer> Value<'k, T> {
    /// Whether the value is the constant `number`.
    pub(super) fn is_known(self, number: u64) -> bool {
        matches!(self.source, ValueSource::Constant(bits) if bits == number)
    }
}

impl<T: Scalar> std::fmt::Debug for Value<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.source {
            ValueSource::Register(register) => write!(f, "Value<{}>(#{})", T::TYPE, register.0),
            ValueSource::Constant(bits) => write!(f, "Value({:?})", T::from_bits(bits)),
        }
    }
}
