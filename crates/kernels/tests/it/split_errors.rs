//! Compares the errors of products in split f16, in tf32x3 and in f32.

use retrograph_kernel_abi::gemm::SPLIT_F16;
use retrograph_kernels::ops::GemmShape;

use crate::gemm_case::{self, Op, TF32X3_TILES, shape, tiles_of};
use crate::harness::Device;
use crate::split_products::Case;
use crate::support::numbers::Data;

/// `x·wᵀ` as SGEMM computes it: each element is a chain of fused multiply-adds.
fn sgemm(x: &[f32], w: &[f32], GemmShape { rows, inputs, outputs }: GemmShape) -> Vec<f32> {
    let element = |row: usize, column: usize| {
        let [x, w] = [(x, row), (w, column)].map(|(m, at)| &m[at * inputs..][..inputs]);
        x.iter().zip(w).fold(0.0_f32, |sum, (x, w)| x.mul_add(*w, sum))
    };
    (0..rows * outputs).map(|at| element(at / outputs, at % outputs)).collect()
}

#[test]
fn errors_are_at_most_twice_those_of_sgemm() {
    let (mut data, device) = (Data::new("errors of split products"), Device::new());
    let shape = shape([24, 1536, 40]);
    for scales in [[1.0, 1.0], [1e-30, 1e30], [1e30, 1e-30], [1e-15, 1e-15]] {
        for outliers in [false, true] {
            let (mut x, mut w) =
                (data.uniform(24 * 1536, scales[0]), data.uniform(40 * 1536, scales[1]));
            if outliers {
                x.iter_mut().step_by(193).for_each(|value| *value *= 1000.0);
                w.iter_mut().step_by(311).for_each(|value| *value *= 1000.0);
            }
            let case = Case::new(Op::Fprop, shape, [&x, &w]);
            let exact = case.exact();
            let sgemm = exact.error(&sgemm(&x, &w, shape));
            for &tile in tiles_of(device.target(), SPLIT_F16) {
                let error = exact.error(&case.run(&device, tile));
                assert!(error <= 2.0 * sgemm, "{scales:?} {tile:?}: {error}, SGEMM {sgemm}");
            }
        }
    }
}

/// Split f16 keeps fewer bits of elements below 2⁻¹⁶ of the largest of their row. They matter most
/// where the other operand has its outlier.
#[test]
fn small_elements_next_to_outliers_of_a_million_need_tf32x3() {
    let (mut data, device) = (Data::new("outliers of split products"), Device::new());
    let shape = shape([24, 1536, 40]);
    let (mut x, mut w) = (data.uniform(24 * 1536, 1.0), data.uniform(40 * 1536, 1.0));
    for (matrix, [outlier, small]) in [(&mut x, [7, 5]), (&mut w, [5, 7])] {
        for row in matrix.chunks_exact_mut(1536) {
            row[outlier] *= 1e6;
            row[small] *= 1e-3;
        }
    }
    let case = Case::new(Op::Fprop, shape, [&x, &w]);
    let exact = case.exact();
    let split = case.run(&device, tiles_of(device.target(), SPLIT_F16)[0]);
    let tf32x3 = gemm_case::Case::new(Op::Fprop, shape, &x, &w);
    let tf32x3 = tf32x3.run_tile(&device, TF32X3_TILES[0]);
    let [split, tf32x3, sgemm] =
        [split, tf32x3, sgemm(&x, &w, shape)].map(|found| exact.error(&found));
    assert!(tf32x3 <= 4.0 * sgemm, "{tf32x3:e}, SGEMM {sgemm:e}");
    assert!(split > 100.0 * sgemm, "{split:e}, SGEMM {sgemm:e}");
}
