//! RMSNorm, its backward pass and the reduction of the gradient of gamma.

use retrograph_kernels::View;
use retrograph_kernels::norm::reference::rms_norm::{RmsNormForward, rms_norm, rms_norm_backward};
use retrograph_kernels::ops::{RmsNorm, RmsNormBackward, RmsNormGammaReduce};

use crate::harness::Device;
use crate::support::numbers::{Data, Tolerance, differences, doubles, same_bits};

/// One row, one column, primes, whole vec4s, more rows than blocks, zero; and rows in registers of
/// one vec4 per thread, of two (partial and full), of four, and of more.
const SHAPES: [(usize, usize); 15] = [
    (1, 1),
    (3, 5),
    (2, 64),
    (5, 127),
    (2, 1030),
    (1, 1536),
    (7, 33),
    (0, 16),
    (300, 8),
    (513, 3),
    (259, 20),
    (2, 2052),
    (1, 4096),
    (1, 4100),
    (1, 8196),
];

/// The rows of an input with their width.
struct Rows<'a> {
    x: &'a [f32],
    gamma: &'a [f32],
    eps: f32,
    /// The offset of the arrays in their buffers, in elements.
    shift: usize,
}

impl Rows<'_> {
    fn count(&self) -> usize {
        self.x.len() / self.gamma.len()
    }

    fn forward(&self) -> (Vec<f32>, Vec<f32>) {
        let device = Device::new();
        let [x, gamma] = [self.x, self.gamma].map(|data| shifted(&device, data, self.shift));
        let y = shifted(&device, &vec![f32::NAN; self.x.len()], self.shift);
        let rstd = device.upload(&vec![f32::NAN; self.count()]);
        let (rows, width, eps) = (self.count(), self.gamma.len(), self.eps);
        device.run(
            &RmsNorm { x, residual: None, gamma, y, rstd, rows, width, eps }.launch().unwrap(),
        );
        (device.download(y), device.download(rstd))
    }

    /// The gradients of the input, added to `before` if it is given, and of gamma.
    fn backward(&self, grad_out: &[f32], before: Option<&[f32]>) -> [Vec<f32>; 2] {
        let (rows, width) = (self.count(), self.gamma.len());
        let rstd = self.forward().1;
        let device = Device::new();
        let [x, gamma, grad_out] =
            [self.x, self.gamma, grad_out].map(|data| shifted(&device, data, self.shift));
        let rstd = device.upload(&rstd);
        let unknown = vec![f32::NAN; self.x.len()];
        let grad_input = shifted(&device, before.unwrap_or(&unknown), self.shift);
        let partial_rows = RmsNormBackward::<u64>::partial_rows(rows);
        let partials = device.upload(&vec![f32::NAN; partial_rows * width]);
        let accumulate = before.is_some();
        let backward = RmsNormBackward {
            x,
            gamma,
            rstd,
            grad_out: &[grad_out.into()],
            grad_input,
            gamma_partials: Some(partials),
            rows,
            width,
            accumulate,
        };
        device.run(&backward.launch().unwrap());
        let grad_gamma = device.upload(&vec![f32::NAN; width]);
        let reduce = RmsNormGammaReduce { partials, grad_gamma, partial_rows, width };
        device.run(&reduce.launch().unwrap());
        // Without partial sums the gradient of the input is the same.
        let gradient: Vec<f32> = device.download(grad_input);
        if !accumulate {
            device.run(&RmsNormBackward { gamma_partials: None, ..backward }.launch().unwrap());
            same_bits(&device.download(grad_input), &gradient, "frozen gamma");
        }
        [gradient, device.download(grad_gamma)]
    }
}

/// A view of `data` that starts `shift` elements into its buffer.
fn shifted(device: &Device, data: &[f32], shift: usize) -> View<u64, f32> {
    let padded = [&vec![f32::NAN; shift], data].concat();
    device.upload(&padded).slice(shift..shift + data.len())
}

fn check_forward(rows: &Rows<'_>, what: &str) {
    let RmsNormForward { y, rstd } =
        rms_norm(&doubles(rows.x), &doubles(rows.gamma), rows.eps.into());
    let actual = rows.forward();
    // Squares are positive, so each addition of a thread and of the block adds one rounding of 6e-8
    // to the relative error; the root halves it.
    let tolerance = Tolerance::relative(2e-6);
    tolerance.check(&actual.0, &y, &format!("y, {what}"));
    tolerance.check(&actual.1, &rstd, &format!("rstd, {what}"));
}

#[test]
fn forward_matches_its_reference() {
    let mut data = Data::new("rms_norm");
    for (rows, width) in SHAPES {
        let (x, gamma) = (data.uniform(rows * width, 2.0), data.uniform(width, 2.0));
        let rows = Rows { x: &x, gamma: &gamma, eps: 1e-6, shift: 0 };
        check_forward(&rows, &format!("{rows} × {width}", rows = rows.count()));
        let (first, again) = (rows.forward(), rows.forward());
        same_bits(&first.0, &again.0, "two runs");
        let unaligned = Rows { shift: 1, ..rows }.forward();
        same_bits(&first.0, &unaligned.0, "aligned and unaligned operands");
        same_bits(&first.1, &unaligned.1, "rstd of aligned and unaligned operands");
    }
}

#[test]
fn forward_is_accurate_from_1e_minus_30_to_1e30() {
    let mut data = Data::new("rms_norm scales");
    // One width is read twice, the other is kept in registers.
    for (exponent, width) in (-30..=30).step_by(5).flat_map(|e| [77, 80].map(|width| (e, width))) {
        let gamma = data.uniform(width, 2.0);
        let scale = 10_f32.powi(exponent);
        let x = data.uniform(3 * width, scale);
        for eps in [0.0, 1e-20, 1e-5] {
            let rows = Rows { x: &x, gamma: &gamma, eps, shift: 0 };
            check_forward(&rows, &format!("scale 1e{exponent}, eps {eps}"));
        }
        let rows = Rows { x: &x, gamma: &gamma, eps: 0.0, shift: 0 };
        let grad = data.uniform(3 * width, 1.0);
        let [input, of_gamma] = rows.backward(&grad, None);
        let expected = rms_norm_backward(&doubles(&x), &doubles(&gamma), &doubles(&grad), 0.0);
        let what = format!("scale 1e{exponent}");
        // Both terms of a gradient may cancel; their size is about 1 / scale.
        let tolerance = Tolerance::relative(1e-5).absolute(1e-5 / f64::from(scale));
        tolerance.check(&input, &expected.grad_input, &what);
        // Sums of three numbers near 1, which may cancel.
        Tolerance::relative(1e-5).absolute(1e-6).check(&of_gamma, &expected.grad_gamma, &what);
    }
}

#[test]
fn a_row_of_zeros_and_rows_of_mixed_scales_are_accurate() {
    let gamma = [1.0, 2.0, 3.0, 4.0, 5.0];
    let x = [[0.0; 5], [1e30, 1.0, -1e-30, 0.0, 1e20], [1e-30, 0.0, 0.0, 1e-25, 0.0]].concat();
    for eps in [1e-30, 1e-6, 4.0] {
        check_forward(&Rows { x: &x, gamma: &gamma, eps, shift: 0 }, &format!("eps {eps:e}"));
    }
}

#[test]
fn nan_stays_in_its_row() {
    for width in [37, 40] {
        let mut data = Data::new("rms_norm nan");
        let (mut x, gamma) = (data.uniform(4 * width, 1.0), vec![1.0; width]);
        x[width + 5] = f32::NAN;
        x[2 * width + 7] = f32::INFINITY;
        let rows = Rows { x: &x, gamma: &gamma, eps: 1e-6, shift: 0 };
        let (y, rstd) = rows.forward();
        assert!(y[..width].iter().chain(&y[3 * width..]).all(|y| y.is_finite()));
        assert!(y[width..2 * width].iter().all(|y| y.is_nan()) && rstd[1].is_nan());
        let infinite = &y[2 * width..3 * width];
        let right = |c: usize| if c == 7 { infinite[c].is_nan() } else { infinite[c] == 0.0 };
        assert!((0..width).all(right));
        let mut grad = data.uniform(4 * width, 1.0);
        grad[3 * width] = f32::NAN;
        let input = &rows.backward(&grad, None)[0];
        assert!(input[..width].iter().all(|grad| grad.is_finite()));
        assert!(input[3 * width..].iter().all(|grad| grad.is_nan()));
    }
}

#[test]
fn backward_matches_its_reference() {
    let mut data = Data::new("rms_norm_backward");
    for (rows, width) in SHAPES {
        let (x, gamma) = (data.uniform(rows * width, 2.0), data.uniform(width, 2.0));
        let grad = data.uniform(rows * width, 3.0);
        let case = Rows { x: &x, gamma: &gamma, eps: 1e-3, shift: 0 };
        let actual = case.backward(&grad, None);
        let eps = f64::from(case.eps);
        let expected = rms_norm_backward(&doubles(&x), &doubles(&gamma), &doubles(&grad), eps);
        let what = format!("{rows} × {width}");
        // Both terms of a gradient may cancel; their size is about rstd. A row of one or few
        // elements may be small throughout, and its rstd large.
        let rstd = case.forward().1.into_iter().fold(1.0, f32::max);
        let tolerance = Tolerance::relative(1e-5).absolute(1e-5 * f64::from(rstd));
        tolerance.check(&actual[0], &expected.grad_input, &what);
        // Terms of random sign near 1 add up to about the root of their number.
        let tolerance = Tolerance::relative(1e-5).absolute(1e-5 * (rows as f64).sqrt());
        tolerance.check(&actual[1], &expected.grad_gamma, &what);
        same_bits(&actual.concat(), &case.backward(&grad, None).concat(), "two runs");
        let unaligned = Rows { shift: 1, ..case }.backward(&grad, None);
        same_bits(&actual.concat(), &unaligned.concat(), "aligned and unaligned operands");
    }
}

#[test]
fn backward_accumulates() {
    let mut data = Data::new("rms_norm_backward accumulate");
    let (x, gamma) = (data.uniform(3 * 21, 2.0), data.uniform(21, 2.0));
    let (grad, before) = (data.uniform(3 * 21, 1.0), data.uniform(3 * 21, 5.0));
    let rows = Rows { x: &x, gamma: &gamma, eps: 1e-6, shift: 0 };
    let alone = &rows.backward(&grad, None)[0];
    let expected: Vec<_> = before.iter().zip(alone).map(|(before, grad)| before + grad).collect();
    same_bits(&rows.backward(&grad, Some(&before))[0], &expected, "accumulate");
}

#[test]
fn backward_agrees_with_differences_of_the_forward_pass() {
    let mut data = Data::new("rms_norm differences");
    for eps in [1e-6_f32, 1e-2, 1.0] {
        let (x, gamma) = (data.uniform(3 * 11, 2.0), data.uniform(11, 2.0));
        let grad = data.uniform(3 * 11, 1.0);
        let actual = Rows { x: &x, gamma: &gamma, eps, shift: 0 }.backward(&grad, None);
        let (x, gamma, grad) = (doubles(&x), doubles(&gamma), doubles(&grad));
        let loss = |x: &[f64], gamma: &[f64]| -> f64 {
            let y = rms_norm(x, gamma, eps.into()).y;
            y.iter().zip(&grad).map(|(y, grad)| y * grad).sum()
        };
        // The tolerance of the comparison with the reference, and as much for the differences.
        let tolerance = Tolerance::relative(2e-5).absolute(2e-5);
        let of_x = differences(&x, 1e-5, |x| loss(x, &gamma));
        tolerance.check(&actual[0], &of_x, "differences of x");
        let of_gamma = differences(&gamma, 1e-5, |gamma| loss(&x, gamma));
        tolerance.check(&actual[1], &of_gamma, "differences of gamma");
    }
}
