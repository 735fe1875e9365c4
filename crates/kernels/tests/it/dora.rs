//! The kernels of DoRA against references in f64 and finite differences.

use half::bf16;
use half::slice::HalfFloatSliceExt as _;
use retrograph_kernels::lora::reference;
use retrograph_kernels::ops::{
    ColumnSum, DoraNorms, DoraScale, DoraScaleBackward, DoraScaleShape, Output, TensorView,
};
use retrograph_kernels::{Access, Argument, KernelError, View};

use crate::bounds::{UNIT, within};
use crate::harness::{Device, UNWRITTEN};
use crate::support::numbers::{Data, differences, doubles, same_bits};

/// Rows and columns of W, and rank: odd sizes, whole tiles, one element more or less, and zero.
const SIZES: [[usize; 3]; 12] = [
    [1, 1, 1],
    [2, 3, 5],
    [31, 64, 8],
    [32, 128, 16],
    [33, 129, 17],
    [4, 257, 32],
    [5, 130, 33],
    [67, 61, 64],
    [3, 40, 70],
    [0, 8, 4],
    [3, 0, 4],
    [3, 8, 0],
];

/// Rows and columns of scaled matrices.
const SHAPES: [[usize; 2]; 10] = [
    [1, 1],
    [2, 3],
    [64, 128],
    [65, 129],
    [63, 127],
    [131, 36],
    [7, 260],
    [200, 5],
    [0, 12],
    [9, 0],
];

/// W, its update and the magnitudes.
#[derive(Clone)]
struct Weight {
    w: Vec<f32>,
    a: Vec<f32>,
    b: Vec<f32>,
    magnitudes: Vec<f32>,
    inputs: usize,
    rank: usize,
    scale: f32,
    in_bf16: bool,
}

impl Weight {
    /// Elements of W and of its update up to `size`.
    fn new(data: &mut Data, [outputs, inputs, rank]: [usize; 3], size: f32) -> Self {
        let root = size.sqrt();
        Self {
            w: data.uniform(outputs * inputs, size),
            a: data.uniform(rank * inputs, root),
            b: data.uniform(outputs * rank, root),
            magnitudes: data.uniform(outputs, size),
            inputs,
            rank,
            scale: 0.75,
            in_bf16: false,
        }
    }

    /// The same with weights in bf16.
    fn in_bf16(self) -> Self {
        let w = self.w.iter().map(|x| bf16::from_f32(*x).to_f32()).collect();
        Self { w, in_bf16: true, ..self }
    }

    fn sizes(&self) -> [usize; 3] {
        [self.magnitudes.len(), self.inputs, self.rank]
    }

    /// Norms and mag_norm_scales. Operands start `shift` elements after an aligned address.
    fn run(&self, shift: usize) -> [Vec<f32>; 2] {
        let device = Device::new();
        let place = |values: &[f32]| {
            let padded = [&vec![f32::NAN; shift], values].concat();
            device.upload(&padded).slice(shift..padded.len())
        };
        let w: TensorView<u64> = match self.in_bf16 {
            false => place(&self.w).into(),
            true => {
                let mut rounded = vec![bf16::NAN; shift + self.w.len()];
                rounded[shift..].convert_from_f32_slice(&self.w);
                device.upload(&rounded).slice(shift..rounded.len()).into()
            }
        };
        let [norms, mag_norm_scales] = [(); 2].map(|()| device.unwritten(self.magnitudes.len()));
        let [a, b, magnitudes] = [&self.a, &self.b, &self.magnitudes].map(|it| place(it));
        let Self { inputs, rank, scale, .. } = *self;
        let launch = DoraNorms { w, a, b, magnitudes, norms, mag_norm_scales, inputs, rank, scale };
        device.run(&launch.launch().unwrap());
        [device.download(norms), device.download(mag_norm_scales)]
    }

    fn reference(&self) -> Vec<f64> {
        let [w, a, b] = [&self.w, &self.a, &self.b].map(|it| doubles(it));
        reference::norms([&w, &a, &b], self.sizes(), self.scale.into())
    }

    /// The norms of the sums of absolute values.
    fn magnitude(&self) -> Vec<f64> {
        let absolute =
            |values: &[f32]| values.iter().map(|x| f64::from(x.abs())).collect::<Vec<_>>();
        let [w, a, b] = [&self.w, &self.a, &self.b].map(|it| absolute(it));
        reference::norms([&w, &a, &b], self.sizes(), f64::from(self.scale.abs()))
    }

    fn check(&self, what: &str) {
        let [norms, mag_norm_scales] = self.run(0);
        let [_, inputs, rank] = self.sizes();
        let terms = (inputs + rank + 16) as f64;
        let expected = self.reference();
        let bounds: Vec<_> = self.magnitude().iter().map(|size| terms * UNIT * size).collect();
        let what = format!("{what} {:?}, bf16 {}", self.sizes(), self.in_bf16);
        within(&norms, &expected, &bounds, &what);
        // The quotient with the written norm, as computed by the host.
        let quotients: Vec<_> = self.magnitudes.iter().zip(&norms).map(|(m, n)| m / n).collect();
        for (found, expected) in mag_norm_scales.iter().zip(&quotients) {
            assert!(found == expected || found.is_nan() && expected.is_nan(), "{what}");
        }
        for shift in [0, 1, 3] {
            let again = self.run(shift);
            same_bits(&again[0], &norms, "norms again");
            same_bits(&again[1], &mag_norm_scales, "mag_norm_scales again");
        }
    }
}

#[test]
fn norms_of_updated_rows_match_their_reference() {
    let mut data = Data::new("dora_norms");
    for sizes in SIZES {
        let weight = Weight::new(&mut data, sizes, 1.0);
        weight.check("norms");
        weight.in_bf16().check("norms");
    }
}

#[test]
fn norms_keep_their_accuracy_from_1e_minus_30_to_1e30() {
    let mut data = Data::new("dora_norms range");
    for size in [1e-30, 1e-21, 1e-19, 1e-9, 1e9, 1e15, 1e19, 1e30] {
        let weight = Weight::new(&mut data, [35, 133, 9], size);
        weight.check("a range");
        weight.in_bf16().check("a range");
    }
    let mut mixed = Weight::new(&mut data, [35, 133, 9], 1.0);
    mixed.w = data.spread(35 * 133);
    mixed.check("every range");
}

#[test]
fn norms_of_rows_with_nan_and_infinity_are_nan_and_infinite() {
    let mut data = Data::new("dora_norms not a number");
    let mut weight = Weight::new(&mut data, [40, 70, 3], 1.0);
    weight.w[7 * 70 + 69] = f32::NAN;
    weight.w[8 * 70] = f32::NEG_INFINITY;
    weight.b[39 * 3 + 2] = f32::NAN;
    weight.w[9 * 70..10 * 70].fill(0.0);
    weight.b[9 * 3..10 * 3].fill(0.0);
    let [norms, mag_norm_scales] = weight.run(0);
    for (row, (norm, factor)) in norms.iter().zip(&mag_norm_scales).enumerate() {
        match row {
            7 | 39 => assert!(norm.is_nan() && factor.is_nan(), "{row}"),
            8 => assert!(*norm == f32::INFINITY && *factor == 0.0, "{row}"),
            9 => assert!(*norm == 0.0 && factor.is_infinite(), "{row}"),
            _ => assert!(norm.is_finite() && factor.is_finite(), "{row}"),
        }
    }
}

/// Operands of a scaled matrix.
struct Scaled {
    shape: DoraScaleShape,
    x: Vec<f32>,
    grad_out: Vec<f32>,
    mag_norm_scales: Vec<f32>,
    norms: Vec<f32>,
    bias: Vec<f32>,
}

/// A matrix in f32 and in bf16.
fn both(device: &Device, values: &[f32], bf16_rows: bool) -> TensorView<u64> {
    if !bf16_rows {
        return device.upload(values).into();
    }
    device.upload(&values.iter().map(|x| bf16::from_f32(*x)).collect::<Vec<_>>()).into()
}

fn rounded(values: &[f32]) -> Vec<f32> {
    values.iter().map(|x| bf16::from_f32(*x).to_f32()).collect()
}

impl Scaled {
    fn new(data: &mut Data, [rows, columns]: [usize; 2], size: f32) -> Self {
        let norms = data.uniform(columns, 1.0).into_iter().map(|x| x.abs() + 0.5).collect();
        // Representable in bf16, so that every dtype has the same values.
        let [x, grad_out] = [size, 1.0 / size].map(|it| rounded(&data.uniform(rows * columns, it)));
        let [mag_norm_scales, bias] = [1.0, size].map(|it| data.uniform(columns, it));
        Self { shape: DoraScaleShape { rows, columns }, x, grad_out, mag_norm_scales, norms, bias }
    }

    /// y in f32 and rounded to bf16.
    fn forward(&self, in_bf16: bool, biased: bool) -> [Vec<f32>; 2] {
        let device = Device::new();
        let x = both(&device, &self.x, in_bf16);
        let y = device.unwritten(self.x.len());
        let y_bf16 = device.upload(&vec![bf16::from_bits(0x7fd0); self.x.len()]);
        let bias = biased.then(|| device.upload(&self.bias));
        let (mag_norm_scales, shape) = (device.upload(&self.mag_norm_scales), self.shape);
        let launch = DoraScale { x, mag_norm_scales, bias, y: Output::Both(y, y_bf16), shape };
        device.run(&launch.launch().unwrap());
        let alone = device.unwritten(self.x.len());
        device.run(&DoraScale { x, mag_norm_scales, bias, y: alone, shape }.launch().unwrap());
        same_bits(&device.download(alone), &device.download(y), "one output or two");
        let y_bf16: Vec<f32> = device.download(y_bf16).into_iter().map(bf16::to_f32).collect();
        [device.download(y), y_bf16]
    }

    /// The gradients of x and of the magnitudes.
    fn backward(&self, [grad_in_bf16, x_in_bf16]: [bool; 2]) -> [Vec<f32>; 2] {
        let (device, shape) = (Device::new(), self.shape);
        let grad_out = both(&device, &self.grad_out, grad_in_bf16);
        let x = both(&device, &self.x, x_in_bf16);
        let [mag_norm_scales, norms] =
            [&self.mag_norm_scales, &self.norms].map(|it| device.upload(it));
        let grad_input = device.unwritten(self.x.len());
        let grad_magnitudes = device.unwritten(shape.runs() * shape.columns);
        let launch = DoraScaleBackward {
            grad_out,
            x,
            mag_norm_scales,
            norms,
            grad_input,
            grad_magnitudes,
            shape,
        };
        device.run(&launch.launch().unwrap());
        let (rows, columns, accumulate) = (shape.runs(), shape.columns, false);
        let out = device.unwritten(columns);
        let sum = ColumnSum { x: grad_magnitudes, out, rows, columns, accumulate };
        device.run(&sum.launch().unwrap());
        [device.download(grad_input), device.download(out)]
    }
}

#[test]
fn scaled_columns_match_their_reference() {
    let mut data = Data::new("dora_scale");
    for shape in SHAPES {
        let scaled = Scaled::new(&mut data, shape, 1.0);
        for biased in [false, true] {
            let bias = if biased { doubles(&scaled.bias) } else { vec![0.0; shape[1]] };
            let expected =
                reference::scale(&doubles(&scaled.x), &doubles(&scaled.mag_norm_scales), &bias);
            let [y, y_bf16] = scaled.forward(false, biased);
            // A product below 1 and a sum below 2 are each rounded at most once.
            within(&y, &expected, &vec![4.0 * UNIT; y.len()], &format!("{shape:?}"));
            same_bits(&y_bf16, &rounded(&y), "rounded");
            same_bits(&scaled.forward(true, biased)[0], &y, "x in bf16");
        }
    }
}

#[test]
fn gradients_of_scaled_columns_match_their_reference() {
    let mut data = Data::new("dora_scale_backward");
    for shape in SHAPES {
        for size in [1.0, 1e-30, 1e30] {
            let scaled = Scaled::new(&mut data, shape, size);
            let [grad_out, x] = [&scaled.grad_out, &scaled.x].map(|it| doubles(it));
            let [mag_norm_scales, norms] =
                [&scaled.mag_norm_scales, &scaled.norms].map(|it| doubles(it));
            let [grads, magnitudes] =
                reference::scale_backward([&grad_out, &x], [&mag_norm_scales, &norms]);
            let found = scaled.backward([false, false]);
            let what = format!("{shape:?} of {size:e}");
            // One product, which may underflow.
            let least = f64::from(f32::from_bits(1));
            let bounds: Vec<_> = grads.iter().map(|grad| UNIT * grad.abs() + least).collect();
            within(&found[0], &grads, &bounds, &what);
            // A chain over the rows of products below 1, divided by norms of at least 0.5.
            let bounds = vec![(shape[0] + 16) as f64 * UNIT * shape[0] as f64 * 2.0; shape[1]];
            within(&found[1], &magnitudes, &bounds, &what);
            for dtypes in [[false, true], [true, false], [true, true], [false, false]] {
                let again = scaled.backward(dtypes);
                same_bits(&again[0], &found[0], "other dtypes");
                same_bits(&again[1], &found[1], "other dtypes");
            }
        }
    }
}

#[test]
fn gradients_are_those_of_the_formula() {
    let mut data = Data::new("dora differences");
    let [rows, columns] = [5, 3];
    let scaled = Scaled::new(&mut data, [rows, columns], 1.0);
    let [grad_out, x] = [&scaled.grad_out, &scaled.x].map(|it| doubles(it));
    let [mag_norm_scales, norms] = [&scaled.mag_norm_scales, &scaled.norms].map(|it| doubles(it));
    let magnitudes: Vec<f64> =
        mag_norm_scales.iter().zip(&norms).map(|(it, norm)| it * norm).collect();
    let loss = |x: &[f64], magnitudes: &[f64]| -> f64 {
        let mag_norm_scales: Vec<_> = magnitudes.iter().zip(&norms).map(|(m, n)| m / n).collect();
        let y = reference::scale(x, &mag_norm_scales, &vec![0.5; columns]);
        y.iter().zip(&grad_out).map(|(y, grad)| y * grad).sum()
    };
    let [grad_input, grad_magnitudes] = scaled.backward([false, false]);
    // The loss is linear in x and in the magnitudes, so differences are exact in f64. A gradient of
    // x is one product, which is below 1. A gradient of a magnitude is a sum of five products,
    // divided by a norm.
    let expected = differences(&x, 1e-3, |x| loss(x, &magnitudes));
    within(&grad_input, &expected, &vec![1e-6; expected.len()], "dx");
    let expected = differences(&magnitudes, 1e-3, |magnitudes| loss(&x, magnitudes));
    within(&grad_magnitudes, &expected, &vec![1e-5; expected.len()], "dm");
}

#[test]
fn nan_stays_in_its_element_and_its_column() {
    let mut data = Data::new("dora not a number");
    let mut scaled = Scaled::new(&mut data, [70, 37], 1.0);
    scaled.x[66 * 37 + 36] = f32::NAN;
    scaled.grad_out[3 * 37 + 1] = f32::INFINITY;
    let [y, _] = scaled.forward(false, true);
    let places = |values: &[f32]| -> Vec<usize> {
        (0..values.len()).filter(|at| !values[*at].is_finite()).collect()
    };
    assert_eq!(places(&y), [66 * 37 + 36]);
    let [grad_input, grad_magnitudes] = scaled.backward([true, true]);
    assert_eq!(places(&grad_input), [3 * 37 + 1]);
    assert_eq!(places(&grad_magnitudes), [1, 36]);
    let unwritten = |x: &f32| x.to_bits() == UNWRITTEN;
    assert!(!grad_input.iter().chain(&grad_magnitudes).any(unwritten));
}

#[test]
fn operands_must_fit_and_accesses_are_declared() {
    let view = |name, len| View::<&'static str, f32>::new(name, len);
    let norms = |a, mag_norm_scales| {
        let (w, b, inputs, rank, scale) = (view("w", 24), view("b", 6), 8, 2, 1.0);
        let (magnitudes, norms) = (view("magnitudes", 3), view("norms", 3));
        let (a, mag_norm_scales) = (view("a", a), view("mag_norm_scales", mag_norm_scales));
        DoraNorms { w, a, b, magnitudes, norms, mag_norm_scales, inputs, rank, scale }.launch()
    };
    let accesses = |launch: retrograph_kernels::Launch<&'static str>| {
        let buffers = launch.arguments().iter().flat_map(Argument::buffers);
        buffers.map(|it| (it.buffer, it.access)).collect::<Vec<_>>()
    };
    let (read, write) = (Access::Read, Access::Write);
    let expected = [
        ("w", read),
        ("a", read),
        ("b", read),
        ("magnitudes", read),
        ("norms", write),
        ("mag_norm_scales", write),
    ];
    assert_eq!(accesses(norms(16, 3).unwrap()), expected);
    assert!(matches!(norms(15, 3), Err(KernelError::Length { operand: "a", .. })));
    assert!(matches!(norms(16, 2), Err(KernelError::Length { operand: "mag_norm_scales", .. })));
    let shape = DoraScaleShape { rows: 3, columns: 4 };
    let scale = |x, mag_norm_scales, y| {
        let (x, mag_norm_scales, bias) =
            (view("x", x), view("mag_norm_scales", mag_norm_scales), Some(view("bias", 4)));
        DoraScale { x, mag_norm_scales, bias, y: view("y", y), shape }.launch()
    };
    let expected = [("x", read), ("mag_norm_scales", read), ("bias", read), ("y", write)];
    assert_eq!(accesses(scale(12, 4, 12).unwrap()), expected);
    assert!(matches!(scale(11, 4, 12), Err(KernelError::Length { operand: "x", .. })));
    assert!(matches!(
        scale(12, 3, 12),
        Err(KernelError::Length { operand: "mag_norm_scales", .. })
    ));
    assert!(matches!(scale(12, 4, 13), Err(KernelError::Length { operand: "y", .. })));
    let backward = |partials| {
        let (grad_out, x) = (view("dy", 12).into(), view("x", 12).into());
        let (mag_norm_scales, norms, grad_input) =
            (view("mag_norm_scales", 4), view("norms", 4), view("dx", 12));
        let grad_magnitudes = view("dm", partials);
        DoraScaleBackward {
            grad_out,
            x,
            mag_norm_scales,
            norms,
            grad_input,
            grad_magnitudes,
            shape,
        }
        .launch()
    };
    let expected = [
        ("dy", read),
        ("x", read),
        ("mag_norm_scales", read),
        ("norms", read),
        ("dx", write),
        ("dm", write),
    ];
    assert_eq!(accesses(backward(4).unwrap()), expected);
    let short = backward(3);
    assert!(matches!(short, Err(KernelError::Length { operand: "grad_magnitudes", .. })));
}
