//! Predicates: one boolean per thread.

use std::ops::{BitAnd, BitOr, BitXor, Not};

use super::kernel::{Emit, Kernel};
use super::scalar::{Arg, Scalar};
use super::value::Value;
use crate::ast::{Guard, Opcode, Operand, RegisterId, Type};

/// A predicate of the kernel `'k`. Negation is free if the predicate only guards instructions.
#[derive(Clone, Copy)]
pub struct Pred<'k> {
    kernel: Kernel<'k>,
    register: RegisterId,
    negated: bool,
}

impl<'k> Pred<'k> {
    pub(super) fn new(kernel: Kernel<'k>, register: RegisterId) -> Self {
        Self { kernel, register, negated: false }
    }

    /// The kernel that the predicate belongs to.
    pub fn kernel(self) -> Kernel<'k> {
        self.kernel
    }

    /// `yes` if the predicate is true, otherwise `no` (`selp`). Both are computed.
    #[track_caller]
    pub fn select<T: Scalar>(self, yes: impl Arg<'k, T>, no: impl Arg<'k, T>) -> Value<'k, T> {
        let (yes, no) =
            (yes.into_value(self.kernel).operand(), no.into_value(self.kernel).operand());
        let (yes, no) = if self.negated { (no, yes) } else { (yes, no) };
        self.kernel.check_open(self.register);
        let operands = vec![yes, no, Operand::Register(self.register)];
        let emit = Emit { opcode: Opcode::Selp, modifiers: &[], types: &[T::TYPE], operands };
        Value::from_register(self.kernel, self.kernel.compute(T::TYPE, emit))
    }

    /// The guard for instructions that run if the predicate is `wanted`.
    #[track_caller]
    pub(super) fn guard(self, wanted: bool) -> Guard {
        self.kernel.check_open(self.register);
        Guard { predicate: self.register, negated: self.negated == wanted }
    }

    /// The predicate as an operand of an instruction that takes no negated predicate.
    #[track_caller]
    pub(super) fn operand(self) -> Operand {
        self.kernel.check_open(self.register);
        if !self.negated {
            return Operand::Register(self.register);
        }
        Operand::Register(self.logic(Opcode::Not, None).register)
    }

    #[track_caller]
    fn logic(self, opcode: Opcode, right: Option<Self>) -> Self {
        let mut operands = vec![Operand::Register(self.register)];
        operands.extend(right.map(Self::operand));
        let emit = Emit { opcode, modifiers: &[], types: &[Type::Pred], operands };
        Self::new(self.kernel, self.kernel.compute(Type::Pred, emit))
    }

    #[track_caller]
    fn combine(self, opcode: Opcode, right: Self) -> Self {
        let left = match self.operand() {
            Operand::Register(register) => Self::new(self.kernel, register),
            _ => self,
        };
        left.logic(opcode, Some(right))
    }
}

impl Not for Pred<'_> {
    type Output = Self;

    fn not(self) -> Self {
        Self { negated: !self.negated, ..self }
    }
}

impl BitAnd for Pred<'_> {
    type Output = Self;

    #[track_caller]
    fn bitand(self, right: Self) -> Self {
        self.combine(Opcode::And, right)
    }
}

impl BitOr for Pred<'_> {
    type Output = Self;

    #[track_caller]
    fn bitor(self, right: Self) -> Self {
        self.combine(Opcode::Or, right)
    }
}

impl BitXor for Pred<'_> {
    type Output = Self;

    #[track_caller]
    fn bitxor(self, right: Self) -> Self {
        self.combine(Opcode::Xor, right)
    }
}

impl std::fmt::Debug for Pred<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pred({}#{})", if self.negated { "!" } else { "" }, self.register.0)
    }
}
