//! Splitting of f32 for tensor cores that know 11 bits of a factor.

use retrograph_ptx::build::Value;

/// The upper 11 bits of a number, rounded, and the rest. NaN and infinities end as NaN in the rest.
pub(crate) fn split(bits: Value<'_, u32>) -> [Value<'_, u32>; 2] {
    let high = (bits + 0x1000) & 0xffff_e000;
    let [value, rounded] = [bits, high].map(Value::<f32>::from_bits);
    [high, (value - rounded).bits()]
}
