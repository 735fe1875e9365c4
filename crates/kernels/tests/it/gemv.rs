//! GEMV against the reference of a product with one row.

use retrograph_kernels::Dispatch;
use retrograph_kernels::ops::{GemmShape, Gemv};

use crate::bounds::{chain, within};
use crate::gemm_case::Format;
use crate::harness::Device;
use crate::products::fprop;
use crate::support::numbers::{Data, doubles, same_bits};

/// Inputs and outputs: zero, one, primes, multiples of 4, of a warp's step and one past it.
const SIZES: [[usize; 2]; 11] = [
    [0, 3],
    [3, 0],
    [1, 1],
    [5, 7],
    [16, 33],
    [128, 4],
    [129, 5],
    [260, 31],
    [1024, 9],
    [2052, 6],
    [2053, 3],
];

/// The storage formats of weights.
const FORMATS: [Format; 4] = [Format::F32, Format::Bf16, Format::Nf4, Format::Nested];

/// A case without options.
const PLAIN: Case<'static> =
    Case { x: &[], w: &[], format: Format::F32, bias: None, before: None, alpha: 1.0, shift: 0 };

#[derive(Clone, Copy)]
struct Case<'a> {
    x: &'a [f32],
    w: &'a [f32],
    format: Format,
    bias: Option<&'a [f32]>,
    before: Option<&'a [f32]>,
    alpha: f32,
    /// Elements by which x and w start later than an aligned address.
    shift: usize,
}

impl Case<'_> {
    fn outputs(&self) -> usize {
        self.w.len() / self.x.len().max(1)
    }

    /// Runs an entry, or the one that the heuristic chooses.
    fn run(&self, outputs: usize, split: Option<usize>) -> Vec<f32> {
        let device = Device::new();
        let place = |data: &[f32]| {
            let padded = [&vec![f32::NAN; self.shift], data].concat();
            device.upload(&padded).slice(self.shift..padded.len())
        };
        let (x, w) = (place(self.x), self.format.upload(&device, self.w, self.shift));
        let bias = self.bias.map(|bias| device.upload(bias));
        let y = self.before.map_or_else(|| device.unwritten(outputs), |y| device.upload(y));
        let (alpha, accumulate) = (self.alpha, self.before.is_some());
        let launch = Gemv { x, w, bias, y, alpha, accumulate }.launch().unwrap();
        let dispatch = launch.dispatch(device.target());
        let dispatch = split.map_or(dispatch, |index| {
            let blocks = (outputs as u32).div_ceil(32 >> index);
            Dispatch { entry: launch.kernel().entries[index], grid: [blocks, 1, 1], ..dispatch }
        });
        device.run_as(&launch, dispatch);
        device.download(y)
    }

    fn check(&self, actual: &[f32], what: &str) {
        let (inputs, outputs) = (self.x.len(), actual.len());
        let shape = GemmShape { rows: 1, inputs, outputs };
        let (x, w) = (doubles(self.x), doubles(&self.format.stored(self.w)));
        let abs = |values: &[f64]| values.iter().map(|v| v.abs()).collect::<Vec<_>>();
        let mut expected = fprop(&x, &w, shape);
        let mut magnitudes = fprop(&abs(&x), &abs(&w), shape);
        for i in 0..outputs {
            let bias = self.bias.map_or(0.0, |bias| f64::from(bias[i]));
            let before = self.before.map_or(0.0, |before| f64::from(before[i]));
            expected[i] = expected[i] * f64::from(self.alpha) + bias + before;
            magnitudes[i] = magnitudes[i] * f64::from(self.alpha.abs()) + bias.abs() + before.abs();
        }
        let bounds: Vec<_> = magnitudes.iter().map(|&m| chain(inputs, m)).collect();
        within(
            actual,
            &expected,
            &bounds,
            &format!("{:?} {inputs} to {outputs} {what}", self.format),
        );
    }
}

#[test]
fn every_split_matches_the_reference_and_repeats_its_bits() {
    let mut data = Data::new("gemv splits");
    for ([inputs, outputs], format) in SIZES.iter().flat_map(|s| FORMATS.map(|format| (*s, format)))
    {
        // Codes come in words of eight codes.
        if matches!(format, Format::Nf4 | Format::Nested) && !inputs.is_multiple_of(8) {
            continue;
        }
        let (x, w) = (data.uniform(inputs, 2.0), data.uniform(inputs * outputs, 2.0));
        let case = Case { x: &x, w: &w, format, ..PLAIN };
        for split in 0..4 {
            let result = case.run(outputs, Some(split));
            case.check(&result, &format!("split {split}"));
            same_bits(&result, &case.run(outputs, Some(split)), "two runs");
        }
        case.check(&case.run(outputs, None), "by its sizes");
    }
}

#[test]
fn the_number_of_blocks_changes_no_bit() {
    let mut data = Data::new("gemv turns");
    for (format, inputs) in FORMATS.iter().flat_map(|format| [8, 520, 1032].map(|i| (*format, i))) {
        let outputs = 137;
        let (x, w) = (data.uniform(inputs, 2.0), data.uniform(inputs * outputs, 2.0));
        let case = Case { x: &x, w: &w, format, ..PLAIN };
        let once = case.run(outputs, Some(0));
        let turns = |blocks| {
            let device = Device::new();
            let (x, w) = (device.upload(case.x), format.upload(&device, case.w, 0));
            let y = device.unwritten(outputs);
            let (bias, alpha, accumulate) = (None, 1.0, false);
            let launch = Gemv { x, w, bias, y, alpha, accumulate }.launch().unwrap();
            let dispatch = launch.dispatch(device.target());
            let (entry, grid) = (launch.kernel().entries[0], [blocks, 1, 1]);
            device.run_as(&launch, Dispatch { entry, grid, ..dispatch });
            device.download(y)
        };
        for blocks in [1, 2, 3] {
            same_bits(&once, &turns(blocks), "turns");
        }
    }
}

#[test]
fn bias_factor_accumulation_and_alignment_match_the_reference() {
    let mut data = Data::new("gemv epilogue");
    let shapes = [[16, 9], [300, 70], [304, 9], [7, 5]];
    let forms = [Format::F32, Format::Bf16];
    for ([inputs, outputs], format) in shapes.iter().flat_map(|s| forms.map(|format| (*s, format)))
    {
        let (x, w) = (data.uniform(inputs, 2.0), data.uniform(inputs * outputs, 2.0));
        let (bias, before) = (data.uniform(outputs, 2.0), data.uniform(outputs, 2.0));
        for before in [None, Some(before.as_slice())] {
            let case =
                Case { x: &x, w: &w, format, bias: Some(&bias), before, alpha: -0.75, shift: 0 };
            let aligned = case.run(outputs, None);
            case.check(&aligned, "with everything");
            let shifted = Case { shift: 1, ..case };
            same_bits(&aligned, &shifted.run(outputs, None), "aligned and unaligned operands");
        }
    }
}

#[test]
fn special_values_reach_their_output_only_and_all_scales_keep_their_precision() {
    let mut data = Data::new("gemv special");
    let (mut x, mut w) = (data.uniform(64, 1.0), data.uniform(64 * 6, 1.0));
    (w[64 + 3], w[3 * 64 + 63]) = (f32::NAN, f32::INFINITY);
    x[63] = 1.0;
    let case = Case { x: &x, w: &w, ..PLAIN };
    assert_eq!(case.outputs(), 6);
    case.check(&case.run(6, None), "special values");
    for scale in [1e-30, 1e30] {
        let (x, w) = (data.uniform(129, 1.0), data.uniform(129 * 5, scale));
        let case = Case { x: &x, w: &w, ..PLAIN };
        case.check(&case.run(5, None), "far from one");
    }
}
