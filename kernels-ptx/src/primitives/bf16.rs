//! Conversion between f32 and bf16.

use retrograph_ptx::SmTarget;
use retrograph_ptx::build::Value;

/// Packs two floats as bf16 into one word, each rounded to nearest even; NaN stays NaN.
pub(crate) fn pack<'k>(target: SmTarget, [low, high]: [Value<'k, f32>; 2]) -> Value<'k, u32> {
    if target.features().bf16_mma {
        return low.cvt_rn_bf16x2(high);
    }
    let round = |value: Value<'k, f32>| {
        let bits = value.bits();
        let rounded = (bits + ((bits >> 16) & 1) + 0x7fff) >> 16;
        value.ne(value).select(bits.kernel().constant(0x7fff), rounded)
    };
    round(low) | (round(high) << 16)
}

/// Packs four floats into two words, as [`pack`] does.
pub(crate) fn pack_vec4<'k>(target: SmTarget, vec4: [Value<'k, f32>; 4]) -> [Value<'k, u32>; 2] {
    [0, 2].map(|i| pack(target, [vec4[i], vec4[i + 1]]))
}

/// Unpacks the two bf16 elements of one word, the lower half first.
pub(crate) fn unpack(word: Value<'_, u32>) -> [Value<'_, f32>; 2] {
    widen(word).map(Value::<f32>::from_bits)
}

/// The bits, as f32, of the two bf16 elements of one word, the lower half first.
pub(crate) fn widen(word: Value<'_, u32>) -> [Value<'_, u32>; 2] {
    [word << 16, word & 0xffff_0000]
}
