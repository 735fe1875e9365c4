//! Mutable registers: accumulators and loop-carried values.

use std::marker::PhantomData;

use super::kernel::{Emit, Kernel};
use super::scalar::{Arg, Scalar};
use super::value::Value;
use crate::ast::{Opcode, Operand, RegisterId};

/// A mutable register, made by [`Kernel::var`].
#[derive(Clone, Copy)]
pub struct Var<'k, T> {
    kernel: Kernel<'k>,
    register: RegisterId,
    ty: PhantomData<T>,
}

impl<'k> Kernel<'k> {
    /// A mutable register with the initial value `initial`.
    #[track_caller]
    pub fn var<T: Scalar>(&self, initial: impl Arg<'k, T>) -> Var<'k, T> {
        let register = self.register(T::TYPE);
        let var = Var { kernel: *self, register, ty: PhantomData };
        var.set(initial);
        var
    }
}

impl<'k, T: Scalar> Var<'k, T> {
    /// The current value. Setting the register later does not change it.
    #[track_caller]
    pub fn get(self) -> Value<'k, T> {
        self.kernel.check_open(self.register);
        let operands = vec![Operand::Register(self.register)];
        let emit = Emit { opcode: Opcode::Mov, modifiers: &[], types: &[T::TYPE], operands };
        Value::from_register(self.kernel, self.kernel.compute(T::TYPE, emit))
    }

    /// Sets the register.
    #[track_caller]
    pub fn set(self, value: impl Arg<'k, T>) {
        self.kernel.check_open(self.register);
        let operands =
            vec![Operand::Register(self.register), value.into_value(self.kernel).operand()];
        let types = &[T::TYPE];
        self.kernel.emit(Emit { opcode: Opcode::Mov, modifiers: &[], types, operands });
    }

    /// Sets the register to `next` of its value.
    #[track_caller]
    pub fn update(self, next: impl FnOnce(Value<'k, T>) -> Value<'k, T>) {
        let value = next(self.get());
        self.set(value);
    }

    /// The register, for instructions that update it in place.
    #[track_caller]
    pub(super) fn register(self) -> RegisterId {
        self.kernel.check_open(self.register);
        self.register
    }

    /// The register as a value, for loops, which set it only after their body.
    pub(super) fn live(self) -> Value<'k, T> {
        Value::from_register(self.kernel, self.register)
    }
}

impl<'k, T: Scalar + PartialEq> Var<'k, T> {
    /// Adds `value` to the register.
    #[track_caller]
    pub fn add_assign(self, value: impl Arg<'k, T>) {
        self.update(|now| now + value);
    }

    /// Subtracts `value` from the register.
    #[track_caller]
    pub fn sub_assign(self, value: impl Arg<'k, T>) {
        self.update(|now| now - value);
    }

    /// Multiplies the register by `value`.
    #[track_caller]
    pub fn mul_assign(self, value: impl Arg<'k, T>) {
        self.update(|now| now * value);
    }
}

impl<T: Scalar> std::fmt::Debug for Var<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Var<{}>(#{})", T::TYPE, self.register.0)
    }
}
