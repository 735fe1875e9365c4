//! Rounding to bf16.

use retrograph_ptx::SmTarget;
use retrograph_ptx::build::Value;

/// Two floats as bf16 in a word, each rounded to the nearest, ties to even; NaN stays NaN.
pub(crate) fn pack<'k>(target: SmTarget, [low, high]: [Value<'k, f32>; 2]) -> Value<'k, u32> {
    if target.features().bf16_mma {
        return low.pack_bf16(high);
    }
    let round = |value: Value<'k, f32>| {
        let bits = value.bits();
        let rounded = (bits + ((bits >> 16) & 1) + 0x7fff) >> 16;
        value.ne(value).select(bits.kernel().constant(0x7fff), rounded)
    };
    round(low) | (round(high) << 16)
}
