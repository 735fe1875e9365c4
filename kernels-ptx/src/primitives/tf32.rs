//! f32 products by tensor cores: each operand is split into two tf32 values.

use retrograph_ptx::build::{Kernel, Value};

use super::mma::AccFragment;

/// An operand of N words, split into `[hi, lo]`.
pub(crate) type Split<'k, const N: usize> = [[Value<'k, u32>; N]; 2];

/// Splits the bits of an f32 into `[hi, lo]`: hi is rounded to the 11 significant bits of tf32, and
/// lo = x − hi is exact. NaN and infinities give a NaN in lo.
fn split_word(bits: Value<'_, u32>) -> [Value<'_, u32>; 2] {
    let hi = (bits + 0x1000) & 0xffff_e000;
    let [value, rounded] = [bits, hi].map(Value::<f32>::from_bits);
    [hi, (value - rounded).bits()]
}

/// Splits each word of an operand, as [`split_word`] does.
pub(crate) fn split<const N: usize>(words: [Value<'_, u32>; N]) -> Split<'_, N> {
    let parts = words.map(split_word);
    [parts.map(|[hi, _]| hi), parts.map(|[_, lo]| lo)]
}

/// `acc += a·b` by three tf32 products per f32 product, with an operand of b for each fragment: the
/// smallest products first, lo·hi' + hi·lo' + hi·hi'.
pub(crate) fn mma_tf32x3<'k>(
    k: &Kernel<'k>,
    a: Split<'k, 4>,
    b: &[Split<'k, 2>],
    acc: &[AccFragment<'k>],
) {
    assert_eq!(b.len(), acc.len(), "an operand of b for each fragment");
    for (a_part, b_part) in [(1, 0), (0, 1), (0, 0)] {
        for (b, fragment) in b.iter().zip(acc) {
            k.mma_m16n8k8_tf32(a[a_part], b[b_part], *fragment);
        }
    }
}
