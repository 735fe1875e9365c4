//! GEMMs with few rows, in every split, on tensor cores and by fused multiply-adds.

use half::bf16;
use retrograph_kernels::ops::{GemmShape, SkinnyFprop};
use retrograph_kernels::{Access, Argument, Dispatch, KernelError, SmTarget};

use crate::bounds::{chain, within};
use crate::gemm_case::rounded;
use crate::harness::Device;
use crate::products::fprop;
use crate::support::{Data, doubles, same_bits};

/// Rows, inputs and outputs: zero, one, primes, and one past tiles and chunks.
const SHAPES: [[usize; 3]; 10] = [
    [1, 0, 3],
    [3, 8, 0],
    [1, 8, 1],
    [2, 16, 16],
    [3, 40, 17],
    [5, 136, 31],
    [7, 200, 129],
    [8, 256, 64],
    [8, 1032, 37],
    [4, 2056, 15],
];

/// Tensor cores round less than once per step, but truncate.
const SLACK: f64 = 4.0;

struct Case<'a> {
    x: &'a [f32],
    /// Values that are exact in bf16.
    w: &'a [f32],
    bias: Option<&'a [f32]>,
    shape: GemmShape,
}

impl Case<'_> {
    /// Runs the entry of `split`, or the selected one.
    fn run(&self, device: &Device, split: Option<usize>) -> Vec<f32> {
        let GemmShape { rows, outputs, .. } = self.shape;
        let w: Vec<_> = self.w.iter().map(|&w| bf16::from_f32(w)).collect();
        let (x, w) = (device.upload(self.x), device.upload(&w));
        let (bias, y) =
            (self.bias.map(|bias| device.upload(bias)), device.unwritten(rows * outputs));
        let launch = SkinnyFprop { x, w, bias, y, shape: self.shape }.launch().unwrap();
        let dispatch = launch.dispatch(device.target());
        let dispatch = split.map_or(dispatch, |index| {
            let blocks = (outputs as u32).div_ceil(128 >> index);
            Dispatch { entry: launch.kernel().entries[index], grid: [blocks, 1, 1], ..dispatch }
        });
        device.run_as(&launch, dispatch);
        device.download(y)
    }

    fn check(&self, actual: &[f32], what: &str) {
        let GemmShape { rows, inputs, outputs } = self.shape;
        let (x, w) = (doubles(&rounded(self.x)), doubles(self.w));
        let abs = |values: &[f64]| values.iter().map(|v| v.abs()).collect::<Vec<_>>();
        let mut expected = fprop(&x, &w, self.shape);
        let mut magnitudes = fprop(&abs(&x), &abs(&w), self.shape);
        for at in 0..rows * outputs {
            let bias = self.bias.map_or(0.0, |bias| f64::from(bias[at % outputs]));
            expected[at] += bias;
            magnitudes[at] += bias.abs();
        }
        let bounds: Vec<_> = magnitudes.iter().map(|&m| SLACK * chain(inputs, m)).collect();
        within(actual, &expected, &bounds, &format!("{:?} {what}", self.shape));
    }
}

fn devices() -> [Device; 2] {
    [Device::new(), Device::with_images_for(SmTarget::portable(75))]
}

fn shape([rows, inputs, outputs]: [usize; 3]) -> GemmShape {
    GemmShape { rows, inputs, outputs }
}

#[test]
fn every_split_matches_the_reference_and_repeats_its_bits() {
    let mut data = Data::new("skinny splits");
    for device in devices() {
        for sizes in SHAPES {
            let [rows, inputs, outputs] = sizes;
            let x = data.uniform(rows * inputs, 2.0);
            let w = rounded(&data.uniform(inputs * outputs, 2.0));
            let bias = data.uniform(outputs, 2.0);
            for bias in [None, Some(bias.as_slice())] {
                let case = Case { x: &x, w: &w, bias, shape: shape(sizes) };
                for split in 0..4 {
                    let result = case.run(&device, Some(split));
                    case.check(&result, &format!("split {split}"));
                    same_bits(&result, &case.run(&device, Some(split)), "two runs");
                }
                case.check(&case.run(&device, None), "by its sizes");
            }
        }
    }
}

/// A sequence of a batch must not depend on the other sequences.
#[test]
fn a_row_has_the_same_bits_alone_and_among_others() {
    let (mut data, device) = (Data::new("skinny rows"), Device::new());
    let (inputs, outputs) = (264, 45);
    let x = data.uniform(8 * inputs, 2.0);
    let w = rounded(&data.uniform(inputs * outputs, 2.0));
    let run = |x: &[f32], rows| {
        Case { x, w: &w, bias: None, shape: shape([rows, inputs, outputs]) }.run(&device, None)
    };
    let all = run(&x, 8);
    for row in 0..8 {
        let alone = run(&x[row * inputs..][..inputs], 1);
        same_bits(&alone, &all[row * outputs..][..outputs], "a row alone");
    }
    let mut poisoned = x.clone();
    poisoned[3 * inputs..][..inputs].fill(f32::NAN);
    let others = run(&poisoned, 8);
    same_bits(&others[..3 * outputs], &all[..3 * outputs], "rows before one of NaN");
    same_bits(&others[4 * outputs..], &all[4 * outputs..], "rows after one of NaN");
    assert!(others[3 * outputs..4 * outputs].iter().all(|y| y.is_nan()));
}

#[test]
fn special_values_reach_only_their_outputs_and_precision_holds_at_every_scale() {
    let mut data = Data::new("skinny special");
    for device in devices() {
        let sizes = [3, 72, 20];
        let (mut x, mut w) = (data.uniform(3 * 72, 1.0), rounded(&data.uniform(72 * 20, 1.0)));
        (w[72 + 3], w[17 * 72 + 71]) = (f32::NAN, f32::INFINITY);
        (x[71], x[72 + 71], x[2 * 72 + 71]) = (1.0, -1.0, 0.5);
        let case = Case { x: &x, w: &w, bias: None, shape: shape(sizes) };
        case.check(&case.run(&device, None), "special values");
        for scale in [1e-30, 1e30] {
            let (x, w) = (data.uniform(3 * 72, 1.0), rounded(&data.uniform(72 * 20, scale)));
            let case = Case { x: &x, w: &w, bias: None, shape: shape(sizes) };
            case.check(&case.run(&device, None), "far from one");
        }
    }
}

#[test]
fn only_weights_are_read_before_the_wait() {
    let device = Device::new();
    let (x, w) = (device.upload(&[0.0f32; 16]), device.upload(&[bf16::ZERO; 32]));
    let (bias, y) = (Some(device.upload(&[0.0f32; 4])), device.unwritten(8));
    let launch = SkinnyFprop { x, w, bias, y, shape: shape([2, 8, 4]) }.launch().unwrap();
    let early = launch.arguments().iter().map(|argument| {
        matches!(argument, Argument::Buffer(buffer) if buffer.access == Access::ReadBeforeWait)
    });
    assert_eq!(early.collect::<Vec<_>>(), [false, true, false, false, false, false, false]);
}

#[test]
fn unsupported_operands_are_refused() {
    let device = Device::new();
    let refused = |[rows, inputs, outputs]: [usize; 3], start: usize| -> KernelError {
        let x = device.upload(&vec![0.0f32; rows * inputs + start]);
        let w = device.upload(&vec![bf16::ZERO; inputs * outputs]);
        let (x, y) = (x.slice(start..start + rows * inputs), device.unwritten(rows * outputs));
        let shape = shape([rows, inputs, outputs]);
        SkinnyFprop { x, w, bias: None, y, shape }.launch().unwrap_err()
    };
    for sizes in [[9, 8, 4], [0, 8, 4], [2, 12, 4]] {
        let error = refused(sizes, 0).to_string();
        assert!(error.contains("rows must be 1 to 8"), "{error}");
    }
    let error = refused([2, 8, 4], 1).to_string();
    assert!(error.contains("multiples of 16 bytes"), "{error}");
    let x = device.upload(&[0.0f32; 16]);
    let (w, y) = (device.upload(&[bf16::ZERO; 31]), device.unwritten(8));
    let short = SkinnyFprop { x, w, bias: None, y, shape: shape([2, 8, 4]) };
    assert!(short.launch().unwrap_err().to_string().contains('w'));
}
