//! Atomic operations on memory.
//!
//! Their order among threads is not fixed, so a float sum differs from run to run. Kernels that
//! must replay bit for bit use them on integers only.

use super::index::Index;
use super::kernel::Emit;
use super::memory::Location;
use super::pointer::Ptr;
use super::scalar::{Arg, Scalar};
use super::shared::Shared;
use super::value::Value;
use crate::ast::{Modifier, Opcode, Operand, Type};

/// A type that atomics support: `u32`, `i32`, `u64` or `f32`.
pub trait AtomicScalar: Scalar {}

impl AtomicScalar for u32 {}
impl AtomicScalar for i32 {}
impl AtomicScalar for u64 {}
impl AtomicScalar for f32 {}

impl<'k> Location<'k> {
    #[track_caller]
    fn atomic<T: Scalar>(self, operation: Modifier, values: &[Value<'k, T>]) -> Value<'k, T> {
        // Exchanges are untyped.
        let untyped = if T::TYPE.size() == 8 { Type::B64 } else { Type::B32 };
        let bits = matches!(operation, Modifier::Exch | Modifier::Cas);
        let ty = if bits { untyped } else { T::TYPE };
        let mut operands = vec![Operand::Address(self.address)];
        operands.extend(values.iter().map(|value| Operand::Register(value.register())));
        let modifiers = &[self.space, operation];
        let emit = Emit { opcode: Opcode::Atom, modifiers, types: &[ty], operands };
        Value::from_register(self.kernel, self.kernel.compute(T::TYPE, emit))
    }
}

macro_rules! atomics {
    ($owner:ident) => {
        impl<'k, T: AtomicScalar> $owner<'k, T> {
            /// Adds `value` to element `index` and returns the previous value (`atom.add`).
            #[track_caller]
            pub fn atom_add(self, index: impl Index<'k>, value: Value<'k, T>) -> Value<'k, T> {
                self.at(index).location().atomic(Modifier::Add, &[value])
            }

            /// Sets element `index` to `value` and returns the previous value (`atom.exch`).
            #[track_caller]
            pub fn atom_exch(self, index: impl Index<'k>, value: Value<'k, T>) -> Value<'k, T> {
                self.at(index).location().atomic(Modifier::Exch, &[value])
            }

            /// Sets element `index` to `new` if its bits equal the bits of `expected`, and returns
            /// the previous value (`atom.cas`).
            #[track_caller]
            pub fn atom_cas(
                self,
                index: impl Index<'k>,
                expected: impl Arg<'k, T>,
                new: Value<'k, T>,
            ) -> Value<'k, T> {
                let expected = expected.into_value(new.kernel());
                self.at(index).location().atomic(Modifier::Cas, &[expected, new])
            }
        }

        impl<'k, T: AtomicScalar + super::Integer> $owner<'k, T> {
            /// Sets element `index` to the lesser of it and `value`, and returns the previous
            /// value (`atom.min`).
            #[track_caller]
            pub fn atom_min(self, index: impl Index<'k>, value: Value<'k, T>) -> Value<'k, T> {
                self.at(index).location().atomic(Modifier::Min, &[value])
            }

            /// Sets element `index` to the greater of it and `value`, and returns the previous
            /// value (`atom.max`).
            #[track_caller]
            pub fn atom_max(self, index: impl Index<'k>, value: Value<'k, T>) -> Value<'k, T> {
                self.at(index).location().atomic(Modifier::Max, &[value])
            }
        }
    };
}

atomics!(Ptr);
atomics!(Shared);
