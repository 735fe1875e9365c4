//! Conversion between f32 and f16.

use retrograph_ptx::SmTarget;
use retrograph_ptx::build::Value;

/// The sign of an f32.
const SIGN: u32 = 0x8000_0000;
/// 2^112, the factor between floats with the exponent bits of f16 and of f32.
const REBIAS: f32 = f32::from_bits((127 + 112) << 23);
/// The bits of an f16 that is not a number.
const NAN: u32 = 0x7fff;

/// Rounds a number below 2^16 to the nearest f16, ties to even. The result is an f32.
pub(crate) fn round(value: Value<'_, f32>) -> Value<'_, f32> {
    // A sum with 1.5 · 2^13 times the power of two below the number is rounded to its 11 bits.
    // Below 2^-14, all f16 are multiples of 2^-24.
    let exponent = (value.bits() & 0x7f80_0000).max((127 - 14) << 23);
    let magic = Value::<f32>::from_bits(exponent + ((13 << 23) | 0x0040_0000));
    (value + magic) - magic
}

/// Packs two numbers below 2^16 as f16 into one word, each rounded to nearest even; NaN stays NaN.
pub(crate) fn pack<'k>(target: SmTarget, [low, high]: [Value<'k, f32>; 2]) -> Value<'k, u32> {
    if target.features().bf16_mma {
        return low.cvt_rn_f16x2(high);
    }
    let bits = |value: Value<'k, f32>| {
        let magnitude = round(value).abs() * (1.0 / REBIAS);
        let bits = (magnitude.bits() >> 13) | ((value.bits() & SIGN) >> 16);
        value.ne(value).select(bits.kernel().constant(NAN), bits)
    };
    bits(low) | (bits(high) << 16)
}

/// The two f16 elements of one word as f32, the lower half first. Infinities become NaN.
pub(crate) fn unpack(word: Value<'_, u32>) -> [Value<'_, f32>; 2] {
    [word & 0xffff, word >> 16].map(|half| {
        let magnitude = Value::<f32>::from_bits((half & 0x7fff) << 13) * REBIAS;
        let value = Value::<f32>::from_bits(magnitude.bits() | ((half & 0x8000) << 16));
        (half & 0x7c00).eq(0x7c00).select(half.kernel().constant(f32::NAN), value)
    })
}
