//! The arithmetic of a product: eight columns at a time, compiled once per vector instruction set.
//! All versions return the same bits, since each product of two elements is exact in `f64`.

use super::{ROWS, STEPS};

/// Columns computed together.
pub(super) const COLUMNS: usize = 8;

/// Rows whose accumulators are in host registers at the same time.
const TOGETHER: usize = 4;

/// The rows of a that a warp multiplies.
pub(super) type Rows = [[f64; STEPS]; ROWS];
/// Sums of eight columns.
pub(super) type Sums = [[f64; COLUMNS]; ROWS];

/// Adds the product of `a` and eight columns of b to `sums`. `b` has one entry per step.
pub(super) fn accumulate(a: &Rows, b: &[[f64; COLUMNS]], sums: &mut Sums) {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the host has the instructions.
            return unsafe { with_avx512(a, b, sums) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the host has the instructions.
            return unsafe { with_avx2(a, b, sums) };
        }
    }
    portable(a, b, sums);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn with_avx512(a: &Rows, b: &[[f64; COLUMNS]], sums: &mut Sums) {
    portable(a, b, sums);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn with_avx2(a: &Rows, b: &[[f64; COLUMNS]], sums: &mut Sums) {
    portable(a, b, sums);
}

#[inline(always)]
fn portable(a: &Rows, b: &[[f64; COLUMNS]], sums: &mut Sums) {
    let (a, _) = a.as_chunks::<TOGETHER>();
    let (sums, _) = sums.as_chunks_mut::<TOGETHER>();
    for (a, sums) in a.iter().zip(sums) {
        let mut local = *sums;
        for (step, b) in b.iter().enumerate().take(STEPS) {
            for (a, sums) in a.iter().zip(&mut local) {
                let a = a[step];
                sums.iter_mut().zip(b).for_each(|(sum, b)| *sum += a * b);
            }
        }
        *sums = local;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_instruction_sets_add_in_the_same_order() {
        // Inexact sums, whose result depends on the order.
        let a: Rows =
            std::array::from_fn(|row| std::array::from_fn(|step| 1.0 / (3 + row * step) as f64));
        let b: [[f64; COLUMNS]; STEPS] = std::array::from_fn(|step| {
            std::array::from_fn(|column| 7f64.powi(step as i32 - column as i32))
        });
        let mut chosen = [[0.5; COLUMNS]; ROWS];
        accumulate(&a, &b, &mut chosen);
        let mut expected = [[0.5; COLUMNS]; ROWS];
        for (row, column) in (0..ROWS).flat_map(|row| (0..COLUMNS).map(move |c| (row, c))) {
            for step in 0..STEPS {
                expected[row][column] += a[row][step] * b[step][column];
            }
        }
        assert_eq!(chosen, expected);
        let mut plain = [[0.5; COLUMNS]; ROWS];
        portable(&a, &b, &mut plain);
        assert_eq!(plain, expected);
    }
}
