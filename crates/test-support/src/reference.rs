//! Arithmetic of references, in `f64`, and roundings. Compiled with optimization, unlike tests,
//! since products take most of the time of a test with a reference.

/// Returns the bits of `values` rounded to bf16, to the nearest and ties to even. NaN becomes the
/// NaN 0x7fff.
pub fn bf16_bits(values: &[f32]) -> Vec<u16> {
    let round = |value: &f32| match value.to_bits() {
        _ if value.is_nan() => 0x7fff,
        bits => ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16,
    };
    values.iter().map(round).collect()
}

/// Returns the f32 values of the bits of bf16.
pub fn from_bf16_bits(bits: &[u16]) -> Vec<f32> {
    bits.iter().map(|&bits| f32::from_bits(u32::from(bits) << 16)).collect()
}

/// Returns the first index i at which `rounded[i]` is not `exact[i]` rounded to bf16. All NaNs are
/// equal.
pub fn not_rounded(exact: &[f32], rounded: &[u16]) -> Option<usize> {
    assert_eq!(exact.len(), rounded.len(), "the lengths of two tensors");
    let is_nan = |bits: u16| bits & 0x7fff > 0x7f80;
    let pairs = bf16_bits(exact).into_iter().zip(rounded);
    pairs
        .enumerate()
        .find(|(_, (expected, found))| {
            expected != *found && !(is_nan(*expected) && is_nan(**found))
        })
        .map(|(at, _)| at)
}

/// Returns the sum of `a[i]·b[i]`, with i ascending.
pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len(), "the lengths of two vectors");
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// `w·x` for a matrix `[outputs, inputs]` and a vector `[inputs]`.
pub fn product(w: &[f64], x: &[f64]) -> Vec<f64> {
    w.chunks(x.len()).map(|row| dot(row, x)).collect()
}

/// Adds `factor·from` to `to`.
pub fn add(to: &mut [f64], factor: f64, from: &[f64]) {
    assert_eq!(to.len(), from.len(), "the lengths of two vectors");
    to.iter_mut().zip(from).for_each(|(to, from)| *to += factor * from);
}

/// `a·b` for matrices `[m, k]` and `[k, n]`; sums have k ascending.
pub fn matmul(a: &[f64], b: &[f64], [m, k, n]: [usize; 3]) -> Vec<f64> {
    let mut product = vec![0.0; m * n];
    for row in 0..m {
        for at in 0..k {
            add(&mut product[row * n..][..n], a[row * k + at], &b[at * n..][..n]);
        }
    }
    product
}

/// The transposed matrix of `x`, `[rows, columns]`.
pub fn transposed(x: &[f64], rows: usize, columns: usize) -> Vec<f64> {
    (0..x.len()).map(|at| x[at % rows * columns + at / rows]).collect()
}
