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
