//! Column sums and means.

use retrograph_kernels::loss::reference::mean;
use retrograph_kernels::norm::reference::column_sum::column_sum;
use retrograph_kernels::ops::{ColumnSum, Mean};

use crate::bounds::{chain, within};
use crate::harness::Device;
use crate::support::numbers::{Data, Tolerance, differences, doubles, same_bits};

fn sums_of(x: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    let device = Device::new();
    let (x, out) = (device.upload(x), device.upload(&vec![f32::NAN; columns]));
    let accumulate = false;
    device.run(&ColumnSum { x, out, rows, columns, accumulate }.launch().unwrap());
    device.download(out)
}

fn mean_of(x: &[f32], counted: u32) -> f32 {
    let device = Device::new();
    let (x, out, counted) = (device.upload(x), device.upload(&[-1.0]), device.upload(&[counted]));
    device.run(&Mean { x, counted, out }.launch().unwrap());
    device.download(out)[0]
}

#[test]
fn column_sums_match_their_reference() {
    let mut data = Data::new("column_sum");
    for rows in [0, 1, 15, 16, 17, 63, 64, 65, 131] {
        for columns in [0, 1, 31, 32, 33, 67] {
            let scale = data.scale();
            let x = data.uniform(rows * columns, scale);
            let actual = sums_of(&x, rows, columns);
            let expected = column_sum(&doubles(&x), columns);
            // A thread adds every 16th row; then the 16 sums are added.
            let absolute: Vec<_> = x.iter().map(|x| f64::from(x.abs())).collect();
            let magnitudes = column_sum(&absolute, columns).into_iter();
            let bounds: Vec<_> = magnitudes.map(|sum| chain(rows.div_ceil(16) + 16, sum)).collect();
            within(&actual, &expected, &bounds, &format!("{rows} × {columns} of {scale:e}"));
            same_bits(&actual, &sums_of(&x, rows, columns), "two runs");
        }
    }
}

#[test]
fn not_a_number_stays_in_its_column() {
    let mut x = vec![1.0; 40 * 35];
    x[20 * 35 + 33] = f32::NAN;
    x[35 + 2] = f32::INFINITY;
    let sums = sums_of(&x, 40, 35);
    for (column, sum) in sums.into_iter().enumerate() {
        match column {
            33 => assert!(sum.is_nan()),
            2 => assert_eq!(sum, f32::INFINITY),
            _ => assert_eq!(sum, 40.0),
        }
    }
}

#[test]
fn column_sums_accumulate() {
    let mut data = Data::new("column_sum accumulate");
    let (rows, columns) = (37, 35);
    let (x, before) = (data.uniform(rows * columns, 1.0), data.uniform(columns, 1.0));
    let device = Device::new();
    let (from, out) = (device.upload(&x), device.upload(&before));
    let added = ColumnSum { x: from, out, rows, columns, accumulate: true };
    device.run(&added.launch().unwrap());
    let sums = sums_of(&x, rows, columns);
    let expected: Vec<f32> = before.iter().zip(&sums).map(|(before, sum)| before + sum).collect();
    same_bits(&device.download(out), &expected, "added by the kernel and here");
}

#[test]
fn column_sums_are_the_gradient_of_a_bias() {
    let mut data = Data::new("bias differences");
    let grad_out = data.uniform(19 * 7, 1.0);
    let actual = sums_of(&grad_out, 19, 7);
    let (grad_out, bias) = (doubles(&grad_out), doubles(&data.uniform(7, 1.0)));
    let expected = differences(&bias, 1e-3, |bias| {
        let biased = bias.iter().cycle().map(|bias| 0.5 + bias);
        biased.zip(&grad_out).map(|(y, grad)| y * grad).sum()
    });
    // The loss is linear, so differences are exact in f64; the sums of 19 numbers below 1 round.
    Tolerance::relative(1e-5).absolute(1e-5).check(&actual, &expected, "differences");
}

#[test]
fn means_match_their_reference() {
    let mut data = Data::new("mean");
    for len in [1, 2, 255, 256, 257, 1009] {
        let scale = data.scale();
        let x = data.uniform(len, scale);
        // The sum is f64, where cancellation costs up to 1e-14; only the mean is rounded to f32.
        let tolerance = Tolerance::relative(1e-7).absolute(1e-14 * f64::from(scale));
        for counted in [len as u32, 1, len.div_ceil(3) as u32, u32::MAX] {
            let what = format!("{len} of {scale:e}, {counted} counted");
            let expected = mean(&doubles(&x), counted);
            tolerance.check(&[mean_of(&x, counted)], &[expected], &what);
            same_bits(&[mean_of(&x, counted)], &[mean_of(&x, counted)], "two runs");
        }
    }
    assert_eq!(mean_of(&[f32::MAX; 300], 300), f32::MAX, "the sum does not overflow");
    assert!(mean_of(&[1.0, f32::NAN, 2.0], 3).is_nan());
}

#[test]
fn the_mean_of_no_counted_values_is_zero() {
    assert_eq!([mean_of(&[], 0), mean_of(&[0.0; 300], 0)].map(f32::to_bits), [0, 0]);
    assert!(mean_of(&[f32::NAN], 0).is_nan());
}
