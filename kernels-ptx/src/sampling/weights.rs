//! Floats as integers of the same order, and as weights that can be added in any order.

use retrograph_ptx::build::{Kernel, Value};

/// One as a weight: 2⁴⁰.
const ONE: f32 = 1_099_511_627_776.0;

/// An integer that is greater for a greater float. −0 comes before 0.
pub(super) fn key<'k>(value: Value<'k, f32>) -> Value<'k, u32> {
    let bits = value.bits();
    // All bits of a negative number are turned over, and the sign of others.
    let negative = bits.ge(1 << 31);
    bits ^ negative.select(u32::MAX, 1 << 31)
}

/// The float of a key.
pub(super) fn value<'k>(key: Value<'k, u32>) -> Value<'k, f32> {
    let negative = key.lt(1 << 31);
    Value::<f32>::from_bits(key ^ negative.select(u32::MAX, 1 << 31))
}

/// `exp((value − max) ÷ temperature)` in whole multiples of 2⁻⁴⁰.
pub(super) fn weight<'k>(
    value: Value<'k, f32>,
    (max, temperature): (Value<'k, f32>, Value<'k, f32>),
) -> Value<'k, u64> {
    (((value - max) / temperature).exp() * ONE).cast::<u64>()
}

/// The sum over the 32 lanes of the warp. Every lane must take part.
pub(super) fn warp_sum<'k>(k: &Kernel<'k>, value: Value<'k, u64>) -> Value<'k, u64> {
    [16, 8, 4, 2, 1]
        .into_iter()
        .fold(value, |sum, mask| sum + halves(sum, |half| k.shuffle_xor(half, mask)))
}

/// The sum over this lane and those below. Every lane of the warp must take part.
pub(super) fn warp_scan<'k>(k: &Kernel<'k>, value: Value<'k, u64>) -> Value<'k, u64> {
    [1, 2, 4, 8, 16].into_iter().fold(value, |sum, delta| {
        let below = halves(sum, |half| k.shuffle_up(half, delta));
        sum + k.lane().ge(delta).select(below, 0)
    })
}

/// What `exchange` makes of the two halves.
fn halves<'k>(
    value: Value<'k, u64>,
    exchange: impl Fn(Value<'k, u32>) -> Value<'k, u32>,
) -> Value<'k, u64> {
    let low = exchange(value.cast());
    let high = exchange((value >> 32).cast());
    low.cast::<u64>() | (high.cast::<u64>() << 32)
}
