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
