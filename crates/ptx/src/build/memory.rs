//! Loads and stores of global and shared memory.

use std::array;

use super::kernel::{Emit, Kernel};
use super::scalar::Scalar;
use super::value::Value;
use crate::ast::{Address, Modifier, Opcode, Operand, Type};

/// A state space and an address in it.
#[derive(Clone, Copy)]
pub(super) struct Location<'k> {
    pub(super) kernel: Kernel<'k>,
    pub(super) space: Modifier,
    pub(super) address: Address,
}

/// The modifier of a vector of `N`.
fn vector_modifier<const N: usize>() -> Modifier {
    match N {
        2 => Modifier::V2,
        _ => Modifier::V4,
    }
}

impl<'k> Location<'k> {
    /// Loads one element. `hint` is a cache modifier such as `.nc` or `.volatile`.
    pub(super) fn load<T: Scalar>(self, hint: Option<Modifier>) -> Value<'k, T> {
        let mut modifiers = vec![self.space];
        modifiers.extend(hint);
        let operands = vec![Operand::Address(self.address)];
        let types = &[T::TYPE];
        let emit = Emit { opcode: Opcode::Ld, modifiers: &modifiers, types, operands };
        Value::from_register(self.kernel, self.kernel.compute(T::TYPE, emit))
    }

    /// Stores one element.
    #[track_caller]
    pub(super) fn store<T: Scalar>(self, value: Value<'k, T>) {
        self.store_as(value, None);
    }

    /// Stores one element with the cache modifier `hint`.
    #[track_caller]
    pub(super) fn store_as<T: Scalar>(self, value: Value<'k, T>, hint: Option<Modifier>) {
        let mut modifiers = vec![self.space];
        modifiers.extend(hint);
        let operands = vec![Operand::Address(self.address), value.operand()];
        let types = &[T::TYPE];
        self.kernel.emit(Emit { opcode: Opcode::St, modifiers: &modifiers, types, operands });
    }

    /// Loads `N` consecutive elements with one instruction and the cache modifier `hint`.
    pub(super) fn load_vector<T: Scalar, const N: usize>(
        self,
        hint: Option<Modifier>,
    ) -> [Value<'k, T>; N] {
        let registers = array::from_fn(|_| self.kernel.register(T::TYPE));
        let destination = registers.map(Operand::Register).to_vec();
        let mut modifiers = vec![self.space, vector_modifier::<N>()];
        modifiers.extend(hint);
        let operands = vec![Operand::Vector(destination), Operand::Address(self.address)];
        let types = &[T::TYPE];
        self.kernel.emit(Emit { opcode: Opcode::Ld, modifiers: &modifiers, types, operands });
        registers.map(|register| Value::from_register(self.kernel, register))
    }

    /// Stores `N` consecutive elements with one instruction.
    #[track_caller]
    pub(super) fn store_vector<T: Scalar, const N: usize>(self, values: [Value<'k, T>; N]) {
        let source = values.map(Value::operand).to_vec();
        let operands = vec![Operand::Address(self.address), Operand::Vector(source)];
        let modifiers = &[self.space, vector_modifier::<N>()];
        let types: &[Type] = &[T::TYPE];
        self.kernel.emit(Emit { opcode: Opcode::St, modifiers, types, operands });
    }
}
