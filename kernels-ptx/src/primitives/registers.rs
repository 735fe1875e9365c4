//! Small arrays of registers, for elements in flight and for accumulators.

use retrograph_ptx::build::{Kernel, Scalar, Value, Var};

/// `N` registers.
pub(crate) type Registers<'k, const N: usize = 4, T = f32> = [Var<'k, T>; N];

/// Registers that start as `value`.
pub(crate) fn registers<'k, const N: usize, T: Scalar>(
    k: &Kernel<'k>,
    value: T,
) -> Registers<'k, N, T> {
    [(); N].map(|()| k.var(value))
}

/// Sets the first registers to `values`.
pub(crate) fn set<'k, T: Scalar>(
    registers: &[Var<'k, T>],
    values: impl IntoIterator<Item = Value<'k, T>>,
) {
    registers.iter().zip(values).for_each(|(register, value)| register.set(value));
}

/// The values of the registers.
pub(crate) fn values<'k, const N: usize, T: Scalar>(
    registers: &Registers<'k, N, T>,
) -> [Value<'k, T>; N] {
    registers.map(Var::get)
}
