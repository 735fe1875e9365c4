//! SiLU, SwiGLU, their backward passes and addition against their references.

use half::bf16;
use retrograph_kernels::elementwise::reference::silu::{
    silu, silu_backward, swiglu, swiglu_backward,
};
use retrograph_kernels::ops::{
    Add, Cast, GatedActivation, Glu, GluBackward, Output, RmsNorm, Silu, SiluBackward, TensorView,
};
use retrograph_kernels::{DType, KernelError, Launch, View};

use crate::harness::Device;
use crate::support::numbers::{Data, Tolerance, differences, doubles, same_bits};

/// Zero, one, vec4s with every remainder, primes, and both sides of a block.
pub(crate) const LENGTHS: [usize; 12] = [0, 1, 2, 3, 4, 5, 7, 127, 1023, 1024, 1025, 2053];

/// Arguments at which a logistic function saturates, under- or overflows, or is undefined.
pub(crate) const EDGES: [f32; 22] = [
    0.0,
    -0.0,
    1e-30,
    -1e-30,
    1e30,
    -1e30,
    20.0,
    -20.0,
    86.0,
    -86.0,
    88.0,
    -88.0,
    89.0,
    -89.0,
    104.0,
    -104.0,
    -1.278,
    f32::MIN_POSITIVE,
    f32::MAX,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
];

pub(crate) type F32 = View<u64, f32>;

/// Runs a launch over `inputs` that writes `outputs` arrays of the same length, once with arrays
/// that are aligned and once with arrays that start four bytes later; the bits must be the same.
pub(crate) fn run(
    inputs: &[&[f32]],
    outputs: usize,
    launch: impl Fn(&[F32], &[F32]) -> Result<Launch<u64>, KernelError>,
) -> Vec<Vec<f32>> {
    let len = inputs[0].len();
    let runs = [0, 1, 0].map(|shift: usize| {
        let device = Device::new();
        let place = |view: F32| view.slice(shift..shift + len);
        let padded =
            |input: &&[f32]| [vec![f32::NAN; shift], input.to_vec(), vec![7.0; 4]].concat();
        let reads: Vec<_> = inputs.iter().map(|i| place(device.upload(&padded(i)))).collect();
        let wholes: Vec<_> = (0..outputs).map(|_| device.upload(&vec![9.0; len + 4])).collect();
        let writes: Vec<_> = wholes.iter().copied().map(place).collect();
        device.run(&launch(&reads, &writes).unwrap());
        wholes
            .iter()
            .map(|&whole| {
                let all: Vec<f32> = device.download(whole);
                let around = [&all[..shift], &all[shift + len..]].concat();
                assert!(around.iter().all(|&x| x == 9.0), "wrote beyond its {len} elements");
                all[shift..shift + len].to_vec()
            })
            .collect::<Vec<_>>()
    });
    for (aligned, other) in runs[0].iter().zip(runs[1].iter()) {
        same_bits(aligned, other, "aligned and unaligned operands");
    }
    for (first, second) in runs[0].iter().zip(runs[2].iter()) {
        same_bits(first, second, "two runs");
    }
    let [first, ..] = runs;
    first
}

fn silu_forward(x: &[f32]) -> Vec<f32> {
    run(&[x], 1, |i, o| Silu { x: i[0], y: o[0] }.launch()).remove(0)
}

fn silu_gradient(x: &[f32], grad_out: &[f32]) -> Vec<f32> {
    let launch =
        |i: &[F32], o: &[F32]| SiluBackward { x: i[0], grad_out: i[1], grad_input: o[0] }.launch();
    run(&[x, grad_out], 1, launch).remove(0)
}

fn swiglu_gradients(gate: &[f32], up: &[f32], grad_out: &[f32]) -> Vec<Vec<f32>> {
    let activation = GatedActivation::Silu;
    run(&[gate, up, grad_out], 2, |i, o| {
        let (gate, up, grad_out) = (i[0], i[1], i[2]);
        GluBackward { activation, gate, up, grad_out, grad_gate: o[0], grad_up: o[1] }.launch()
    })
}

#[test]
fn silu_matches_its_reference() {
    let mut data = Data::new("silu");
    for len in LENGTHS {
        let x = data.uniform(len, 12.0);
        let expected: Vec<_> = x.iter().map(|&x| silu(x.into())).collect();
        Tolerance::relative(1e-6).check(&silu_forward(&x), &expected, "silu");
    }
    let expected: Vec<_> = EDGES.iter().map(|&x| silu(x.into())).collect();
    Tolerance::relative(1e-6).check(&silu_forward(&EDGES), &expected, "silu at the edges");
}

#[test]
fn silu_backward_matches_its_reference_and_differences() {
    let mut data = Data::new("silu_backward");
    for len in LENGTHS {
        let (x, grad) = (data.uniform(len, 12.0), data.uniform(len, 3.0));
        let actual = silu_gradient(&x, &grad);
        let (x, grad) = (doubles(&x), doubles(&grad));
        let tolerance = Tolerance::relative(1e-6).absolute(1e-6);
        tolerance.check(&actual, &silu_backward(&x, &grad), "silu_backward");
        let loss = |x: &[f64]| x.iter().zip(&grad).map(|(&x, grad)| silu(x) * grad).sum();
        if len <= 127 {
            let expected = differences(&x, 1e-4, loss);
            Tolerance::relative(1e-5).absolute(1e-5).check(&actual, &expected, "differences");
        }
    }
    let grad = vec![1.0; EDGES.len()];
    let expected = silu_backward(&doubles(&EDGES), &doubles(&grad));
    // At −1.278 the derivative is nearly 0, the difference of two numbers near 0.2.
    let tolerance = Tolerance::relative(1e-6).absolute(1e-7);
    tolerance.check(&silu_gradient(&EDGES, &grad), &expected, "silu_backward at the edges");
}

#[test]
fn swiglu_matches_its_reference_from_1e_minus_30_to_1e30() {
    let mut data = Data::new("swiglu");
    for (len, scale) in LENGTHS.into_iter().zip([1.0, 1e-30, 1e30].into_iter().cycle()) {
        let (gate, up) = (data.uniform(len, 12.0), data.uniform(len, scale));
        let activation = GatedActivation::Silu;
        let launch =
            |i: &[F32], o: &[F32]| Glu { activation, gate: i[0], up: i[1], out: o[0] }.launch();
        let actual = run(&[&gate, &up], 1, launch).remove(0);
        let expected = swiglu(&doubles(&gate), &doubles(&up));
        Tolerance::relative(1e-6).check(&actual, &expected, "swiglu");
    }
}

#[test]
fn swiglu_backward_matches_its_reference_and_differences() {
    let mut data = Data::new("swiglu_backward");
    for (len, scale) in LENGTHS.into_iter().zip([1.0, 1e-30, 1e30].into_iter().cycle()) {
        let (gate, up) = (data.uniform(len, 8.0), data.uniform(len, 2.0));
        let grad = data.uniform(len, scale);
        let actual = swiglu_gradients(&gate, &up, &grad);
        let (gate, up, grad) = (doubles(&gate), doubles(&up), doubles(&grad));
        let (grad_gate, grad_up) = swiglu_backward(&gate, &up, &grad);
        let scale = f64::from(scale);
        let tolerance = Tolerance::relative(1e-6).absolute(2e-6 * scale);
        tolerance.check(&actual[0], &grad_gate, "grad_gate");
        Tolerance::relative(1e-6).check(&actual[1], &grad_up, "grad_up");
        if len <= 127 {
            let total = |out: &[f64]| out.iter().zip(&grad).map(|(y, g)| y * g).sum::<f64>();
            let tolerance = Tolerance::relative(1e-5).absolute(1e-5 * scale);
            let of_gate = differences(&gate, 1e-4, |gate| total(&swiglu(gate, &up)));
            tolerance.check(&actual[0], &of_gate, "differences of gate");
            let of_up = differences(&up, 1e-4, |up| total(&swiglu(&gate, up)));
            tolerance.check(&actual[1], &of_up, "differences of up");
        }
    }
}

pub(crate) type Bf16 = View<u64, bf16>;

/// The activation of a gated linear unit at `x`, in f64.
pub(crate) struct Gate {
    /// The factor σ of `x · σ`.
    pub(crate) sigmoid: f64,
    /// The derivative of `x · σ`, and a bound of its derivative by σ.
    pub(crate) derivative: [f64; 2],
}

/// Checks out, grad_gate and grad_up of inputs in bf16, at an aligned address and after one.
/// Relative errors of σ are below `error`, and it is 0 below 2⁻¹²⁶.
pub(crate) fn gated_from_bf16_is_within_its_bound(
    name: &str,
    error: f64,
    launches: impl Fn([Bf16; 3], [F32; 3]) -> [Result<Launch<u64>, KernelError>; 2],
    gate: impl Fn(f64) -> Gate,
) {
    let (mut data, device) = (Data::new(name), Device::new());
    let cases = LENGTHS.into_iter().flat_map(|len| [(len, 0), (len, 1)]);
    for ((len, shift), scale) in cases.flat_map(|case| [(case, 8.0), (case, 1e30)]) {
        let mut rounded = || -> Vec<bf16> {
            let values = data.uniform(shift + len, scale);
            values.iter().map(|&value| bf16::from_f32(value)).collect()
        };
        let given = [rounded(), rounded(), rounded()];
        let inputs = given.each_ref().map(|values| device.upload(values).slice(shift..shift + len));
        let results = [0; 3].map(|_| device.unwritten(len));
        for launch in launches(inputs, results) {
            device.run(&launch.unwrap());
        }
        let found = results.map(|result| device.download(result));
        for at in 0..len {
            let [x, up, grad] = given.each_ref().map(|values| values[shift + at].to_f64());
            let Gate { sigmoid, derivative: [derivative, slope] } = gate(x);
            let error = sigmoid * error + f64::from(f32::MIN_POSITIVE);
            let expected = [
                (x * sigmoid * up, x * up),
                (grad * up * derivative, grad * up * slope),
                (grad * (x * sigmoid), grad * x),
            ];
            for (result, (expected, slope)) in found.iter().zip(expected) {
                let (result, expected_f32) = (f64::from(result[at]), expected as f32);
                let bound = slope.abs() * error + expected.abs() * 2f64.powi(-21) + 1e-38;
                let near = (result - expected).abs() <= bound;
                let overflows = expected_f32.is_infinite() || expected.abs() > 1e38;
                assert!(near || overflows, "{result} is not {expected} at {x}, {up}, {grad}");
            }
        }
    }
}

#[test]
fn swiglu_from_bf16_is_within_its_bound_of_swiglu_from_the_same_numbers() {
    let launches = |[gate, up, grad_out]: [Bf16; 3], [out, grad_gate, grad_up]: [F32; 3]| {
        let activation = GatedActivation::Silu;
        let backward = GluBackward { activation, gate, up, grad_out, grad_gate, grad_up };
        [Glu { activation, gate, up, out }.launch(), backward.launch()]
    };
    gated_from_bf16_is_within_its_bound("swiglu in bf16", 2f64.powi(-18), launches, |x| {
        let sigmoid = 1.0 / (1.0 + (-x).exp());
        let derivative = sigmoid * (1.0 + x * (1.0 - sigmoid));
        Gate { sigmoid, derivative: [derivative, 1.0 + 2.0 * x.abs()] }
    });
}

#[test]
fn swiglu_refuses_inputs_of_two_types() {
    let device = Device::new();
    let [gate, out] = [0; 2].map(|_| device.unwritten(8));
    let up = TensorView::Bf16(device.upload(&[bf16::ONE; 8]));
    let (activation, gate) = (GatedActivation::Silu, TensorView::F32(gate));
    let mixed = Glu { activation, gate, up, out };
    let error = mixed.launch().unwrap_err();
    let expected = matches!(error, KernelError::UnsupportedDType { dtype: DType::Bf16, .. });
    assert!(expected, "{error}");
}

#[test]
fn not_a_number_stays_in_its_place() {
    let mut data = Data::new("nan");
    let (gate, up) = (data.uniform(9, 2.0), data.uniform(9, 2.0));
    let mut grad = data.uniform(9, 2.0);
    grad[4] = f32::NAN;
    for gradient in swiglu_gradients(&gate, &up, &grad) {
        let places: Vec<_> = (0..9).filter(|&i| gradient[i].is_nan()).collect();
        assert_eq!(places, [4]);
    }
}

#[test]
fn addition_is_exact_and_may_be_in_place() {
    let mut data = Data::new("add");
    for len in LENGTHS {
        let (a, b) = (data.spread(len), data.spread(len));
        let launch = |i: &[F32], o: &[F32]| Add { a: i[0], b: i[1], out: o[0] }.launch();
        let expected: Vec<_> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
        same_bits(&run(&[&a, &b], 1, launch)[0], &expected, "add");
        let device = Device::new();
        let (va, vb) = (device.upload(&a), device.upload(&b));
        device.run(&Add { a: va, b: vb, out: va }.launch().unwrap());
        same_bits(&device.download(va), &expected, "add in place");
    }
}

/// A launch that writes one result to the given outputs.
type Write<'a> = &'a dyn Fn(Output<u64>) -> Result<Launch<u64>, KernelError>;

/// Checks that a bf16 result, alone or with f32, at an aligned address or not, is the rounded f32
/// result, and that nothing is written beyond it.
pub(crate) fn rounds(device: &Device, len: usize, launch: Write<'_>) {
    let exact = device.unwritten(len);
    device.run(&launch(exact.into()).unwrap());
    let exact = device.download(exact);
    let expected: Vec<u16> = exact.iter().map(|&x| bf16::from_f32(x).to_bits()).collect();
    for (shift, both) in [(0, false), (0, true), (1, false), (1, true)] {
        let whole = device.upload(&vec![bf16::MAX; len + 4]);
        let rounded = whole.slice(shift..shift + len);
        let beside = device.unwritten(shift + len).slice(shift..shift + len);
        let to = if both { Output::Both(beside, rounded) } else { Output::Bf16(rounded) };
        device.run(&launch(to).unwrap());
        let found: Vec<bf16> = device.download(whole);
        for (i, found) in found.iter().enumerate() {
            let inside = (shift..shift + len).contains(&i);
            let wanted = if inside { expected[i - shift] } else { bf16::MAX.to_bits() };
            let both_nan = found.is_nan() && bf16::from_bits(wanted).is_nan();
            assert!(found.to_bits() == wanted || both_nan, "{i} of {len}: {found} at {shift}");
        }
        if both {
            same_bits(&exact, &device.download(beside), "f32 beside bf16");
        }
    }
}

#[test]
fn results_in_bf16_are_those_in_f32_rounded() {
    let (mut data, device) = (Data::new("rounded results"), Device::new());
    for len in LENGTHS {
        let mut a = data.uniform(len, 4.0);
        let (b, c) = (data.uniform(len, 4.0), data.uniform(len, 4.0));
        a.iter_mut().zip(EDGES).for_each(|(a, edge)| *a = edge);
        let [a, b, c] = [a, b, c].map(|values| device.upload(&values));
        let scratch = device.unwritten(len);
        let activation = GatedActivation::Silu;
        rounds(&device, len, &|out| Glu { activation, gate: a, up: b, out }.launch());
        rounds(&device, len, &|out| Add { a, b, out }.launch());
        rounds(&device, len, &|to| {
            let (gate, up, grad_out, grad_up) = (a, b, c, Output::F32(scratch));
            GluBackward { activation, gate, up, grad_out, grad_gate: to, grad_up }.launch()
        });
        let y = device.upload(&vec![bf16::MAX; len]);
        device.run(&Cast { x: b, y }.launch().unwrap());
        let expected = device.download(b).into_iter().map(bf16::from_f32).collect::<Vec<_>>();
        assert_eq!(device.download(y), expected);
    }
}

#[test]
fn norms_in_bf16_are_those_in_f32_rounded() {
    let (mut data, device) = (Data::new("rounded norms"), Device::new());
    for (rows, width) in [(1, 1), (3, 7), (2, 64), (5, 130), (2, 1024)] {
        let [x, gamma] = [rows * width, width].map(|len| device.upload(&data.uniform(len, 2.0)));
        let rstd = device.unwritten(rows);
        rounds(&device, rows * width, &|y| {
            RmsNorm { x, residual: None, gamma, y, rstd, rows, width, eps: 1e-6 }.launch()
        });
    }
}
