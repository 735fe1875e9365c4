//! Column sums in f64.

/// The sum of each column of `x`, row-major with `columns` columns.
pub fn column_sum(x: &[f64], columns: usize) -> Vec<f64> {
    let mut sums = vec![0.0; columns];
    for row in x.chunks_exact(columns.max(1)) {
        sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
    }
    sums
}
