//! Arithmetic of references, in `f64`. Compiled with optimization, unlike tests, since products
//! take most of the time of a test with a reference.

/// Returns the sum of `a[i]·b[i]`, with i ascending.
pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len(), "the lengths of two vectors");
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// `w·x` for a matrix `[outputs, inputs]` and a vector `[inputs]`.
pub fn product(w: &[f64], x: &[f64]) -> Vec<f64> {
    w.chunks(x.len()).map(|row| dot(row, x)).collect()
}
