//! Splitting of f32 into two tf32 values.

use retrograph_ptx::build::Value;

/// Splits the bits of an f32 into `[hi, lo]`: hi is rounded to the 11 significant bits of tf32, and
/// lo = x − hi is exact. NaN and infinities give a NaN in lo.
pub(crate) fn split(bits: Value<'_, u32>) -> [Value<'_, u32>; 2] {
    let hi = (bits + 0x1000) & 0xffff_e000;
    let [value, rounded] = [bits, hi].map(Value::<f32>::from_bits);
    [hi, (value - rounded).bits()]
}
