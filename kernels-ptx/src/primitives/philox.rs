//! Philox 4x32-10: four random words from a counter and a key.

use retrograph_ptx::build::Value;

/// The last word of the counter in sampling.
pub(crate) const SAMPLING_DOMAIN: u32 = 0;
/// The last word of the counter in dropout. It differs from sampling, so the random numbers do.
pub(crate) const DROPOUT_DOMAIN: u32 = 1;

/// The factors of the first and the third word.
const FACTORS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
/// The increment of the key after each round.
const STEPS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: u32 = 10;

/// The words of `counter` under `key`.
pub(crate) fn philox<'k>(
    counter: [Value<'k, u32>; 4],
    key: [Value<'k, u32>; 2],
) -> [Value<'k, u32>; 4] {
    let mut words = counter;
    for round in 0..ROUNDS {
        let [a, b, c, d] = words;
        let key = [0, 1].map(|i| key[i] + STEPS[i].wrapping_mul(round));
        words = [
            c.mul_hi(FACTORS[1]) ^ b ^ key[0],
            c * FACTORS[1],
            a.mul_hi(FACTORS[0]) ^ d ^ key[1],
            a * FACTORS[0],
        ];
    }
    words
}

/// A number with the standard Gumbel distribution from a random word.
///
/// −ln E with E = −ln(1 − u) and u = (word + ½) ÷ 2³². Large numbers come from small u, where 1 − u
/// would lose its digits; the first terms of the series of E are exact to rounding there.
pub(crate) fn gumbel<'k>(word: Value<'k, u32>) -> Value<'k, f32> {
    // The largest u below 1 keeps E finite.
    let u = ((word.cast::<f32>() + 0.5) * (1.0 / 4_294_967_296.0)).min(0.999_999_94);
    let kernel = u.kernel();
    let series = u.fma(kernel.constant(0.25f32), 1.0 / 3.0);
    let series = u.fma(u.fma(series, 0.5), 1.0) * u;
    let logarithm = -(1.0 - u).ln();
    -u.lt(1.0 / 64.0).select(series, logarithm).ln()
}
