//! Error bounds of sums of products.

/// The rounding unit of f32.
pub(crate) const UNIT: f64 = 1.0 / (1 << 24) as f64;

/// The error bound of a chain of `terms` fused multiply-adds and a few operations after it.
/// `magnitude` is the sum of the absolute values: each operation rounds by at most one unit of a
/// value up to the magnitude, or by the least number if it underflows.
pub(crate) fn chain(terms: usize, magnitude: f64) -> f64 {
    let operations = terms as f64 + 8.0;
    operations * (UNIT * magnitude * 1.001 + f64::from(f32::from_bits(1)))
}

/// Checks that each element is within its bound, and that NaN and infinities match.
#[track_caller]
pub(crate) fn within(actual: &[f32], expected: &[f64], bounds: &[f64], what: &str) {
    assert_eq!(actual.len(), expected.len(), "{what}: number of elements");
    for (i, ((&actual, &expected), bound)) in actual.iter().zip(expected).zip(bounds).enumerate() {
        let actual = f64::from(actual);
        let fits = if expected.is_finite() {
            (actual - expected).abs() <= *bound
        } else {
            actual == expected || (actual.is_nan() && expected.is_nan())
        };
        assert!(fits, "{what}: element {i} is {actual:e}, not {expected:e} ± {bound:e}");
    }
}
