//! Sums in RMSNorm: the residual add in the forward pass, and gradient sums in the backward pass.

use half::bf16;
use retrograph_kernels::View;
use retrograph_kernels::ops::{Output, ResidualAdd, RmsNorm, RmsNormBackward, TensorView};

use crate::harness::Device;
use crate::support::numbers::{Data, same_bits};

/// Rows and width: read twice; in registers with one vec4 per thread, with two (partial), and with
/// four; more rows than blocks.
const SHAPES: [(usize, usize); 7] =
    [(1, 1), (3, 37), (0, 8), (5, 64), (300, 12), (2, 2100), (1, 4104)];

/// A view of `data` that starts `shift` elements into its buffer.
fn shifted(device: &Device, data: &[f32], shift: usize) -> View<u64, f32> {
    let padded = [&vec![f32::NAN; shift], data].concat();
    device.upload(&padded).slice(shift..shift + data.len())
}

fn added(left: &[f32], right: &[f32]) -> Vec<f32> {
    left.iter().zip(right).map(|(left, right)| left + right).collect()
}

#[test]
fn a_residual_is_added_before_the_norm_bit_for_bit() {
    let (mut data, device) = (Data::new("rms_norm residual"), Device::new());
    for ((rows, width), shift) in SHAPES.iter().flat_map(|shape| [0, 1].map(|s| (*shape, s))) {
        let len = rows * width;
        let (mut x, mut term) = (data.uniform(len, 2.0), data.uniform(len, 3.0));
        // Negative zero plus negative zero is negative zero, as without a residual.
        x.iter_mut().zip(&mut term).take(1).for_each(|pair| (*pair.0, *pair.1) = (-0.0, -0.0));
        let gamma = device.upload(&data.uniform(width, 2.0));
        let expected = added(&x, &term);
        let norm = |x: &[f32], residual: Option<&[f32]>| {
            let [y, sum] = [(); 2].map(|()| shifted(&device, &vec![f32::NAN; len], shift));
            let rstd = device.unwritten(rows);
            let residual = residual
                .map(|term| ResidualAdd { residual: shifted(&device, term, shift).into(), sum });
            let x = shifted(&device, x, shift);
            let norm = RmsNorm { x, residual, gamma, y, rstd, rows, width, eps: 1e-6 };
            device.run(&norm.launch().unwrap());
            [y, rstd, sum].map(|view| device.download(view))
        };
        let ([y, rstd, sum], [alone, alone_rstd, _]) =
            (norm(&x, Some(&term)), norm(&expected, None));
        let what = format!("{rows} × {width} from {shift}");
        same_bits(&sum, &expected, &format!("sum, {what}"));
        same_bits(&y, &alone, &format!("y, {what}"));
        same_bits(&rstd, &alone_rstd, &format!("rstd, {what}"));
    }
}

/// The operands of a backward pass on the device.
struct Backward<'a> {
    device: &'a Device,
    x: View<u64, f32>,
    gamma: View<u64, f32>,
    rstd: View<u64, f32>,
    rows: usize,
    width: usize,
    shift: usize,
}

impl Backward<'_> {
    /// Adds to `before`. Returns the sum as f32 and as bf16, and the partial sums of gamma.
    fn run(&self, gradients: &[Vec<f32>], before: &[f32]) -> (Vec<f32>, Vec<bf16>, Vec<f32>) {
        let gradient = |it: &Vec<f32>| shifted(self.device, it, self.shift).into();
        self.run_views(&gradients.iter().map(gradient).collect::<Vec<_>>(), before)
    }

    fn run_views(
        &self,
        gradients: &[TensorView<u64>],
        before: &[f32],
    ) -> (Vec<f32>, Vec<bf16>, Vec<f32>) {
        let Self { device, x, gamma, rstd, rows, width, shift } = *self;
        let len = RmsNormBackward::<u64>::partial_rows(rows) * width;
        let partials = device.unwritten(len);
        let plain = shifted(device, before, shift);
        let rounded = device.upload(&vec![bf16::MAX; before.len()]);
        let backward = RmsNormBackward {
            x,
            gamma,
            rstd,
            grad_out: gradients,
            grad_input: Output::Both(plain, rounded),
            gamma_partials: Some(partials),
            rows,
            width,
            accumulate: true,
        };
        device.run(&backward.launch().unwrap());
        (device.download(plain), device.download(rounded), device.download(partials))
    }
}

#[test]
fn gradients_are_added_in_order_and_the_sum_is_rounded() {
    let (mut data, device) = (Data::new("rms_norm_backward sums"), Device::new());
    for ((rows, width), shift) in SHAPES.iter().flat_map(|shape| [0, 1].map(|s| (*shape, s))) {
        let len = rows * width;
        let x = shifted(&device, &data.uniform(len, 2.0), shift);
        let gamma = device.upload(&data.uniform(width, 2.0));
        let rstd = device.upload(&data.uniform(rows, 1.0));
        let [a, b, c, before] = [(); 4].map(|()| data.uniform(len, 3.0));
        let backward = Backward { device: &device, x, gamma, rstd, rows, width, shift };
        let what = format!("{rows} × {width} from {shift}");
        let sums = [added(&a, &b), added(&added(&a, &b), &c)];
        let given = [vec![a.clone(), b.clone()], vec![a, b, c]];
        for (gradients, sum) in given.into_iter().zip(sums) {
            let (plain, rounded, partials) = backward.run(&gradients, &before);
            let (alone, _, alone_partials) = backward.run(&[sum], &before);
            same_bits(&plain, &alone, &format!("{} gradients, {what}", gradients.len()));
            same_bits(&partials, &alone_partials, &format!("gamma, {what}"));
            let expected: Vec<_> = plain.iter().map(|&x| bf16::from_f32(x)).collect();
            assert_eq!(rounded, expected, "{what}");
        }
    }
}

#[test]
fn bf16_terms_have_the_bits_of_the_same_f32_values() {
    let (mut data, device) = (Data::new("rms_norm terms in bf16"), Device::new());
    for ((rows, width), shift) in SHAPES.iter().flat_map(|shape| [0, 1].map(|s| (*shape, s))) {
        let (len, what) = (rows * width, format!("{rows} × {width} from {shift}"));
        let mut term = data.uniform(len, 3.0);
        let special = [f32::NAN, f32::INFINITY, -0.0, 1e-30, 1e30];
        term.iter_mut().rev().step_by(11).zip(special).for_each(|(term, value)| *term = value);
        let x = shifted(&device, &data.uniform(len, 2.0), shift);
        let gamma = device.upload(&data.uniform(width, 2.0));
        let before = data.uniform(len, 1.0);
        let in_both = device.upload_in_both(&term, shift);
        let [plain, halves] = in_both.map(|residual| {
            let [y, sum] = [(); 2].map(|()| shifted(&device, &vec![f32::NAN; len], shift));
            let (rstd, residual) = (device.unwritten(rows), Some(ResidualAdd { residual, sum }));
            let norm = RmsNorm { x, residual, gamma, y, rstd, rows, width, eps: 1e-6 };
            device.run(&norm.launch().unwrap());
            [y, rstd, sum].map(|view| device.download(view))
        });
        for (name, (plain, halves)) in ["y", "rstd", "sum"].iter().zip(plain.iter().zip(&halves)) {
            same_bits(halves, plain, &format!("{name}, {what}"));
        }
        let rstd = device.upload(&data.uniform(rows, 1.0));
        let backward = Backward { device: &device, x, gamma, rstd, rows, width, shift };
        let others = device.upload_in_both(&data.uniform(len, 1.0), shift);
        let sums = [[in_both[0], others[0]], [in_both[1], others[0]], [in_both[0], others[1]]];
        let [plain, second, third] = sums.map(|[a, b]| backward.run_views(&[a, b, a], &before));
        for halves in [second, third] {
            same_bits(&halves.0, &plain.0, &format!("gradient, {what}"));
            same_bits(&halves.2, &plain.2, &format!("gamma, {what}"));
        }
    }
}
