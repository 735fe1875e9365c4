//! Order-preserving integer keys for floats, and fixed-point weights whose sums are exact.

use retrograph_ptx::build::{Kernel, Value};

/// The weight 1 in fixed point: 2⁴⁰.
const ONE: f32 = 1_099_511_627_776.0;

/// An integer that preserves the order of floats; −0 is below 0.
pub(super) fn key<'k>(value: Value<'k, f32>) -> Value<'k, u32> {
    let bits = value.bits();
    // Flips all bits of a negative number, and only the sign of others.
    let negative = bits.ge(1 << 31);
    bits ^ negative.select(u32::MAX, 1 << 31)
}

/// The float of a key.
pub(super) fn value<'k>(key: Value<'k, u32>) -> Value<'k, f32> {
    let negative = key.lt(1 << 31);
    Value::<f32>::from_bits(key ^ negative.select(u32::MAX, 1 << 31))
}

/// `exp((value − max) ÷ temperature)` as a multiple of 2⁻⁴⁰, rounded down.
pub(super) fn weight<'k>(
    value: Value<'k, f32>,
    max: Value<'k, f32>,
    temperature: Value<'k, f32>,
) -> Value<'k, u64> {
    (((value - max) / temperature).exp() * ONE).cast::<u64>()
}

/// The sum over the 32 lanes of the warp. All lanes must participate.
pub(super) fn warp_sum<'k>(k: &Kernel<'k>, value: Value<'k, u64>) -> Value<'k, u64> {
    [16, 8, 4, 2, 1]
        .into_iter()
        .fold(value, |sum, mask| sum + shuffle_words(sum, |half| k.shfl_bfly(half, mask)))
}

/// The inclusive prefix sum over the lanes. All lanes must participate.
pub(super) fn warp_scan<'k>(k: &Kernel<'k>, value: Value<'k, u64>) -> Value<'k, u64> {
    [1, 2, 4, 8, 16].into_iter().fold(value, |sum, delta| {
        let below = shuffle_words(sum, |half| k.shfl_up(half, delta));
        sum + k.lane().ge(delta).select(below, 0)
    })
}

/// Applies a 32-bit shuffle to both words of a 64-bit value.
fn shuffle_words<'k>(
    value: Value<'k, u64>,
    shuffle: impl Fn(Value<'k, u32>) -> Value<'k, u32>,
) -> Value<'k, u64> {
    let low = shuffle(value.cast());
    let high = shuffle((value >> 32).cast());
    low.cast::<u64>() | (high.cast::<u64>() << 32)
}
