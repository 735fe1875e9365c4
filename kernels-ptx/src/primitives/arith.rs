//! Division by constants.

use retrograph_ptx::build::Value;

/// `value ÷ size` for a `size` of 2ⁿ, or of 3 · 2ⁿ if `value ÷ 2ⁿ` is below 2^16.
///
/// `ptxas` would emit a full division by a constant that is not a power of two.
pub(crate) fn div_const<'k>(value: Value<'k, u32>, size: u32) -> Value<'k, u32> {
    if size.is_power_of_two() {
        return value >> size.ilog2();
    }
    let third = size / 3;
    assert!(third.is_power_of_two() && third * 3 == size, "tiles are 2^n or 3 · 2^n");
    // 2^17 ÷ 3, rounded up: exact as long as value ÷ third is below 2^17 ÷ 2.
    ((value >> third.ilog2()) * 43_691) >> 17
}

/// `value mod size`, with the limits of [`div_const`].
pub(crate) fn rem_const<'k>(value: Value<'k, u32>, size: u32) -> Value<'k, u32> {
    match size.is_power_of_two() {
        true => value & (size - 1),
        false => value - div_const(value, size) * size,
    }
}
