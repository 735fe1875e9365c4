//! Sums and means in double precision.

/// The sum of each column of `x`, row-major with `columns` columns.
pub fn column_sum(x: &[f64], columns: usize) -> Vec<f64> {
    let mut sums = vec![0.0; columns];
    for row in x.chunks_exact(columns.max(1)) {
        sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
    }
    sums
}

/// The mean of `x` over the `counted` values that count; the others are 0.
pub fn mean(x: &[f64], counted: u32) -> f64 {
    x.iter().sum::<f64>() / f64::from(counted.max(1))
}
