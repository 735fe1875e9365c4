//! Matrices split into two f16 terms, and their products.

use half::{bf16, f16};
use retrograph_kernel_abi::gemm::SPLIT_F16;
use retrograph_kernels::ops::{
    DType, Dgrad, DgradSplitK, Fprop, FpropSplitK, GemmShape, NotInF16, Split, SplitKSum,
    SplitMatrix, split_rows,
};
use retrograph_kernels::{KernelError, Launch, SmTarget, View};

use crate::gemm_case::{Op, Tile, geometry, shape, tiles_of};
use crate::harness::Device;
use crate::products;
use crate::support::numbers::{Data, doubles, same_bits};

/// Zero, edges of tiles and of stages, several stages and one more, more rows of tiles than a band.
const SHAPES: [[usize; 3]; 9] = [
    [0, 8, 8],
    [8, 0, 8],
    [1, 8, 8],
    [16, 24, 40],
    [7, 72, 136],
    [136, 200, 64],
    [40, 328, 72],
    [8, 264, 264],
    [1160, 72, 136],
];

/// A split matrix of `rows` × `columns` elements, initialized to NaN.
pub(crate) fn unwritten(device: &Device, rows: usize, columns: usize) -> SplitMatrix<u64> {
    unwritten_terms(device, [rows, columns], SplitMatrix::<u64>::MAX_TERMS)
}

fn unwritten_terms(device: &Device, [rows, columns]: [usize; 2], count: usize) -> SplitMatrix<u64> {
    let terms = device.upload(&vec![f16::NAN; count * rows * columns]);
    SplitMatrix { terms, term_count: count, scales: device.unwritten(rows) }
}

fn split(
    device: &Device,
    values: &[f32],
    [rows, columns]: [usize; 2],
    column_scales: Option<View<u64, f32>>,
) -> SplitMatrix<u64> {
    split_into(device, values, column_scales, unwritten(device, rows, columns), [rows, columns])
}

fn split_into(
    device: &Device,
    values: &[f32],
    column_scales: Option<View<u64, f32>>,
    out: SplitMatrix<u64>,
    [rows, columns]: [usize; 2],
) -> SplitMatrix<u64> {
    let x = device.upload(values);
    device.run(&Split { x, column_scales, out, rows, columns }.launch().unwrap());
    out
}

/// The values of a split matrix in f64.
fn joined(device: &Device, matrix: SplitMatrix<u64>, columns: usize) -> Vec<f64> {
    let terms: Vec<f16> = device.download(matrix.terms);
    let scales: Vec<f32> = device.download(matrix.scales);
    let (hi, lo) = terms.split_at(terms.len() / 2);
    let sums = hi.iter().zip(lo).map(|(hi, lo)| hi.to_f64() + lo.to_f64());
    sums.enumerate().map(|(at, sum)| sum * f64::from(scales[at / columns])).collect()
}

/// A product of split matrices.
#[derive(Clone, Copy)]
pub(crate) struct Case<'a> {
    op: Op,
    shape: GemmShape,
    /// x or dy, and w.
    operands: [&'a [f32]; 2],
    bias: Option<&'a [f32]>,
    /// Terms of w.
    terms: usize,
    /// Splits of the contraction.
    splits: usize,
}

impl<'a> Case<'a> {
    pub(crate) fn new(op: Op, shape: GemmShape, operands: [&'a [f32]; 2]) -> Self {
        Self { op, shape, operands, bias: None, terms: SplitMatrix::<u64>::MAX_TERMS, splits: 1 }
    }

    /// The launch and its result (the partial sums with split-K), initialized to NaN.
    fn launch(&self, device: &Device) -> (Launch<u64>, View<u64, f32>) {
        let GemmShape { rows, inputs, outputs } = self.shape;
        let w = unwritten_terms(device, [outputs, inputs], self.terms);
        let w = split_into(device, self.operands[1], None, w, [outputs, inputs]);
        let (shape, splits, alpha, accumulate) = (self.shape, self.splits, 1.0, false);
        match self.op {
            Op::Fprop => {
                let x = split(device, self.operands[0], [rows, inputs], None);
                if splits > 1 {
                    let partials = device.unwritten(splits * rows * outputs);
                    let product = FpropSplitK { x, w, partials, shape, splits };
                    return (product.launch().unwrap(), partials);
                }
                let (y, bias) = (device.unwritten(rows * outputs), self.bias);
                let bias = bias.map(|bias| device.upload(bias));
                (Fprop { x, w, bias, y, shape, alpha, accumulate }.launch().unwrap(), y)
            }
            Op::Dgrad => {
                let sizes = [rows, outputs];
                let grad_out = split(device, self.operands[0], sizes, Some(w.scales));
                if splits > 1 {
                    let partials = device.unwritten(splits * rows * inputs);
                    let product = DgradSplitK { grad_out, w, partials, shape, splits };
                    return (product.launch().unwrap(), partials);
                }
                let grad_input = device.unwritten(rows * inputs);
                let product = Dgrad { grad_out, w, grad_input, shape, alpha, accumulate };
                (product.launch().unwrap(), grad_input)
            }
            Op::Wgrad => unreachable!("gradients of weights contract over rows"),
        }
    }

    pub(crate) fn run(&self, device: &Device, tile: Tile) -> Vec<f32> {
        let (launch, result) = self.launch(device);
        device.run_as(&launch, geometry(&launch, device.target(), tile));
        if self.splits == 1 {
            return device.download(result);
        }
        let out = device.unwritten(result.len() / self.splits);
        let sum = SplitKSum { partials: result, out, splits: self.splits };
        device.run(&sum.launch().unwrap());
        device.download(out)
    }

    fn reference(&self, [a, b]: [&[f64]; 2]) -> Vec<f64> {
        match self.op {
            Op::Fprop => products::fprop(a, b, self.shape),
            _ => products::dgrad(a, b, self.shape),
        }
    }

    /// The exact elements.
    pub(crate) fn exact(&self) -> Exact {
        let [a, b] = self.operands.map(doubles);
        let magnitudes = |values: &[f64]| values.iter().map(|v| v.abs()).collect::<Vec<_>>();
        let mut elements = self.reference([&a, &b]);
        let mut units = self.reference([&magnitudes(&a), &magnitudes(&b)]);
        if let Some(bias) = self.bias {
            for at in 0..elements.len() {
                let bias = f64::from(bias[at % bias.len()]);
                elements[at] += bias;
                units[at] += bias.abs();
            }
        }
        Exact { elements, units }
    }

    /// The error of one result.
    fn error(&self, found: &[f32]) -> f64 {
        self.exact().error(found)
    }

    fn length(&self) -> usize {
        if self.op == Op::Fprop { self.shape.inputs } else { self.shape.outputs }
    }

    /// The error bound: both operands are truncated to 23 bits and the product of their lo terms is
    /// dropped; tensor cores truncate a few bits within a stage of 64; stages are added in f32.
    fn bound(&self) -> f64 {
        (16.0 + (self.length() / 64) as f64) / f64::from(1 << 24)
    }
}

/// The elements of a result in f64, and for each the sum of the magnitudes of its terms.
pub(crate) struct Exact {
    elements: Vec<f64>,
    units: Vec<f64>,
}

impl Exact {
    /// The largest error of an element of `found`, in these units.
    pub(crate) fn error(&self, found: &[f32]) -> f64 {
        let pairs = self.elements.iter().zip(&self.units);
        let errors = found.iter().zip(pairs).map(|(&value, (expected, unit))| {
            (f64::from(value) - expected).abs() / unit.max(f64::MIN_POSITIVE)
        });
        errors.fold(0.0, |most, error| if error > most || error.is_nan() { error } else { most })
    }
}

const OPS: [Op; 2] = [Op::Fprop, Op::Dgrad];

#[test]
fn a_split_keeps_23_bits_of_elements_near_the_largest_of_their_row() {
    let (mut data, device) = (Data::new("split"), Device::new());
    for [rows, columns] in [
        [0, 8],
        [3, 0],
        [1, 8],
        [5, 24],
        [3, 1024],
        [2, 1032],
        [4, 4104],
        [3, 8960],
        [2, 9224],
        [1, 18440],
    ] {
        let mut values = data.spread(rows * columns);
        // A row of zeros, and one with an outlier.
        if rows > 2 {
            values[..columns].fill(0.0);
            values[columns..2 * columns].iter_mut().take(1).for_each(|value| *value = 1e30);
        }
        let column_scales: Vec<f32> =
            (0..columns).map(|at| (at as f32 % 60.0 - 30.0).exp2()).collect();
        for column_scales in [None, Some(&column_scales)] {
            let on_device = column_scales.map(|column_scales| device.upload(column_scales));
            let matrix = split(&device, &values, [rows, columns], on_device);
            let found = joined(&device, matrix, columns.max(1));
            let expected: Vec<f64> = doubles(&values)
                .into_iter()
                .enumerate()
                .map(|(at, value)| {
                    value * column_scales.map_or(1.0, |f| f64::from(f[at % columns]))
                })
                .collect();
            for (row, (found, expected)) in
                found.chunks(columns.max(1)).zip(expected.chunks(columns.max(1))).enumerate()
            {
                let largest = expected.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
                for (found, expected) in found.iter().zip(expected) {
                    let bound = expected.abs() * (-23.0_f64).exp2() + largest * (-39.0_f64).exp2();
                    let error = (found - expected).abs();
                    assert!(error <= bound, "row {row}: {found} is not {expected}");
                }
            }
        }
    }
}

#[test]
fn scales_put_the_largest_element_of_a_row_below_2_to_the_15() {
    let device = Device::new();
    let rows = [1.0, -1.5, 3e38, 1e-30, -65504.0, 1e-38, 0.0];
    let values: Vec<f32> =
        rows.iter().flat_map(|&value| [value, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]).collect();
    let matrix = split(&device, &values, [rows.len(), 8], None);
    let (terms, scales): (Vec<f16>, Vec<f32>) =
        (device.download(matrix.terms), device.download(matrix.scales));
    for (row, &value) in rows.iter().enumerate() {
        let (high, scale) = (terms[row * 8].to_f32().abs(), scales[row]);
        assert!(scale.is_normal() && scale.to_bits().trailing_zeros() >= 23, "{value}: {scale}");
        if value.abs() > 1e-34 {
            assert!((16384.0..=32768.0).contains(&high), "{value}: {high}");
        }
    }
}

#[test]
fn every_tile_matches_the_reference_and_the_others_bit_for_bit() {
    let (mut data, device) = (Data::new("split products"), Device::new());
    for (op, sizes) in OPS.into_iter().flat_map(|op| SHAPES.map(|sizes| (op, sizes))) {
        let shape = shape(sizes);
        let ([a, b, _], _) = op.lens(shape);
        let (a, b) = (data.uniform(a, 2.0), data.uniform(b, 2.0));
        let case = Case::new(op, shape, [&a, &b]);
        let [by_wgmma @ .., portable] = tiles_of(device.target(), SPLIT_F16) else { panic!() };
        let exact = case.exact();
        let error = exact.error(&case.run(&device, *portable));
        assert!(error <= case.bound(), "{op:?} {sizes:?}: {error}");
        let Some((first, others)) = by_wgmma.split_first() else { continue };
        let found = case.run(&device, *first);
        let error = exact.error(&found);
        assert!(error <= case.bound(), "{op:?} {sizes:?}: {error}");
        same_bits(&found, &case.run(&device, *first), "two runs");
        for &tile in others {
            same_bits(&found, &case.run(&device, tile), &format!("{op:?} {sizes:?} {tile:?}"));
        }
    }
}

/// Rounds an f32 value to bf16 or f16.
type Rounding = (&'static str, fn(f32) -> f32);
const ROUNDINGS: [Rounding; 2] =
    [("bf16", |x| bf16::from_f32(x).to_f32()), ("f16", |x| f16::from_f32(x).to_f32())];

#[test]
fn weights_that_are_exactly_bf16_or_f16_need_one_term() {
    let (mut data, device) = (Data::new("products of one term"), Device::new());
    for (op, sizes) in OPS.into_iter().flat_map(|op| SHAPES.map(|sizes| (op, sizes))) {
        let shape = shape(sizes);
        let ([a, b, _], _) = op.lens(shape);
        for (dtype, rounding) in ROUNDINGS {
            let a = data.uniform(a, 2.0);
            let b: Vec<f32> = data.uniform(b, 2.0).into_iter().map(rounding).collect();
            let case = Case { terms: 1, ..Case::new(op, shape, [&a, &b]) };
            let (in_two, exact) = (Case { terms: 2, ..case }, case.exact());
            for &tile in tiles_of(device.target(), SPLIT_F16) {
                let found = case.run(&device, tile);
                let error = exact.error(&found);
                assert!(error <= case.bound(), "{op:?} {sizes:?} {dtype} {tile:?}: {error}");
                let what = format!("{op:?} {sizes:?} {dtype} {tile:?}");
                same_bits(&found, &in_two.run(&device, tile), &what);
            }
        }
    }
}

/// Elements far below the largest of their row are truncated as with two terms.
#[test]
fn one_term_keeps_the_bound_of_two() {
    let (mut data, device) = (Data::new("one term"), Device::new());
    let [rows, columns] = [7, 1032];
    for (dtype, rounding) in ROUNDINGS {
        let values: Vec<f32> = data
            .spread(rows * columns)
            .into_iter()
            .map(rounding)
            .map(|value| if value.is_finite() { value } else { 1.0 })
            .collect();
        let out = unwritten_terms(&device, [rows, columns], 1);
        let matrix = split_into(&device, &values, None, out, [rows, columns]);
        let terms: Vec<f16> = device.download(matrix.terms);
        let scales: Vec<f32> = device.download(matrix.scales);
        let mut on_host = vec![f16::NAN; values.len()];
        let host_scales = split_rows(&values, columns, &mut on_host).unwrap();
        same_bits(&scales, &host_scales, dtype);
        for (at, (on_device, on_host)) in terms.iter().zip(&on_host).enumerate() {
            let (value, bits) = (values[at], [on_device, on_host].map(|term| term.to_bits()));
            assert_eq!(bits[0], bits[1], "{dtype}, {value} at {at}");
        }
        for (row, expected) in values.chunks(columns).enumerate() {
            let largest = expected.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
            let bound = f64::from(largest) * (-39.0_f64).exp2();
            for (term, &expected) in terms[row * columns..].iter().zip(expected) {
                let found = term.to_f64() * f64::from(scales[row]);
                let error = (found - f64::from(expected)).abs();
                assert!(error <= bound, "{dtype}, row {row}: {found} is not {expected}");
            }
        }
    }
}

/// Rows of any magnitude, zeros of both signs and values that are not finite. Before sm_80, integer
/// instructions pack f16.
#[test]
fn the_host_split_has_the_bits_of_the_kernel() {
    check_host_split(&Device::new());
    check_host_split(&Device::with_images_for(SmTarget::portable(75)));
}

fn check_host_split(device: &Device) {
    let mut data = Data::new("split on the host");
    for [rows, columns] in [[1, 8], [7, 1032], [3, 4104]] {
        let mut values = data.spread(rows * columns);
        values[..6].copy_from_slice(&[-0.0, 0.0, f32::NAN, f32::NEG_INFINITY, 1.0, 1e-42]);
        let matrix = split(device, &values, [rows, columns], None);
        let mut on_host = vec![f16::NAN; 2 * values.len()];
        let scales = split_rows(&values, columns, &mut on_host).unwrap();
        same_bits(&device.download::<f32>(matrix.scales), &scales, "scales");
        let terms: Vec<f16> = device.download(matrix.terms);
        for (at, (on_device, on_host)) in terms.iter().zip(&on_host).enumerate() {
            let (value, bits) = (values[at % values.len()], [on_device, on_host]);
            assert_eq!(bits[0].to_bits(), bits[1].to_bits(), "{value} at {at}: {bits:?}");
        }
    }
}

#[test]
fn the_host_refuses_elements_that_need_a_lo_term() {
    let mut high = [f16::ZERO; 8];
    let values = [1.0, 0.0, -0.0, 2.0_f32.powi(-39), f32::NAN, f32::INFINITY, 1e-38, 3.0];
    let scales = split_rows(&values, 4, &mut high).unwrap();
    assert_eq!(scales, [2.0_f32.powi(-14), 2.0_f32.powi(-13)]);
    assert_eq!(high[0].to_f32(), 16384.0);
    assert!(high[4].is_nan() && high[5].is_nan() && high[7].to_f32() == 24576.0);
    let mut inexact = values;
    inexact[6] = 1.000_1;
    let error = split_rows(&inexact, 4, &mut high).unwrap_err();
    assert_eq!(error, NotInF16 { index: 6, value: 1.000_1 });
    assert_eq!(split_rows(&[], 8, &mut []), Ok(Vec::new()));
}

#[test]
fn a_bias_is_added_and_results_of_any_width_are_written() {
    let (mut data, device) = (Data::new("bias of split products"), Device::new());
    for outputs in [1, 3, 37, 40, 129] {
        let shape = shape([70, 72, outputs]);
        let (x, w) = (data.uniform(70 * 72, 2.0), data.uniform(72 * outputs, 2.0));
        let bias = data.uniform(outputs, 2.0);
        let case = Case { bias: Some(&bias), ..Case::new(Op::Fprop, shape, [&x, &w]) };
        for &tile in tiles_of(device.target(), SPLIT_F16) {
            let error = case.error(&case.run(&device, tile));
            assert!(error <= case.bound(), "{outputs} {tile:?}: {error}");
        }
    }
}

#[test]
fn magnitudes_within_an_operand_keep_their_bound() {
    let (mut data, device) = (Data::new("magnitudes of split products"), Device::new());
    for op in OPS {
        let shape = shape([40, 72, 136]);
        let ([a, b, _], _) = op.lens(shape);
        let (mut a, mut b) = (data.uniform(a, 1.0), data.uniform(b, 1.0));
        // Rows of both operands from 1e-15 to 1e15.
        let magnitude = |row: usize| 10.0_f32.powi((row % 31) as i32 - 15);
        let columns = if op == Op::Fprop { 72 } else { 136 };
        a.iter_mut().enumerate().for_each(|(at, value)| *value *= magnitude(at / columns));
        b.iter_mut().enumerate().for_each(|(at, value)| *value *= magnitude(at / 72 * 7));
        let case = Case::new(op, shape, [&a, &b]);
        for &tile in tiles_of(device.target(), SPLIT_F16) {
            let error = case.error(&case.run(&device, tile));
            assert!(error <= case.bound(), "{op:?} {tile:?}: {error}");
        }
    }
}

#[test]
fn nan_and_infinity_reach_exactly_what_depends_on_them() {
    let (mut data, device) = (Data::new("special split products"), Device::new());
    for (op, special) in OPS.into_iter().flat_map(|op| [f32::NAN, f32::INFINITY].map(|s| (op, s))) {
        let shape = shape([40, 72, 136]);
        let ([a, b, len], _) = op.lens(shape);
        let (mut a, mut b) = (data.uniform(a, 2.0), data.uniform(b, 2.0));
        let plain =
            Case::new(op, shape, [&a.clone(), &b.clone()]).run(&device, *SPLIT_F16.last().unwrap());
        let columns = if op == Op::Fprop { 72 } else { 136 };
        a[5 * columns + 3] = special;
        b[7 * 72 + 9] = special;
        // Row 7 of w is column 7 of y; its element 9 reaches column 9 of dx.
        let (column, width) = if op == Op::Fprop { (7, 136) } else { (9, 72) };
        let case = Case::new(op, shape, [&a, &b]);
        for &tile in tiles_of(device.target(), SPLIT_F16) {
            let found = case.run(&device, tile);
            for at in 0..len {
                let reached = at / width == 5 || at % width == column;
                assert_eq!(found[at].is_nan(), reached, "{op:?} {special} {tile:?}: {at}");
                let near = (found[at] - plain[at]).abs() <= 1e-3;
                assert!(reached || near, "{op:?} {special} {tile:?}: {at}");
            }
        }
    }
}

#[test]
fn split_k_matches_the_reference_with_every_tile() {
    let (mut data, device) = (Data::new("split-K of split products"), Device::new());
    for (op, sizes, splits) in [
        (Op::Fprop, [7, 192, 136], 3),
        (Op::Fprop, [1160, 128, 72], 2),
        (Op::Fprop, [1, 1024, 8], 16),
        (Op::Dgrad, [40, 328, 256], 2),
        (Op::Dgrad, [136, 72, 640], 5),
        (Op::Dgrad, [264, 200, 192], 3),
    ] {
        let shape = shape(sizes);
        let ([a, b, _], _) = op.lens(shape);
        let a = data.uniform(a, 2.0);
        let b: Vec<f32> = data.uniform(b, 2.0).into_iter().map(ROUNDINGS[0].1).collect();
        let case = Case { splits, ..Case::new(op, shape, [&a, &b]) };
        let one_term = Case { terms: 1, ..case };
        let [by_wgmma @ .., portable] = tiles_of(device.target(), SPLIT_F16) else { panic!() };
        let exact = case.exact();
        let error = exact.error(&case.run(&device, *portable));
        assert!(error <= case.bound(), "{op:?} {sizes:?}: {error}");
        let Some((first, others)) = by_wgmma.split_first() else { continue };
        let found = case.run(&device, *first);
        let error = exact.error(&found);
        assert!(error <= case.bound(), "{op:?} {sizes:?}: {error}");
        same_bits(&found, &case.run(&device, *first), "two runs");
        same_bits(&found, &one_term.run(&device, *first), "one term and two");
        for &tile in others {
            same_bits(&found, &case.run(&device, tile), &format!("{op:?} {sizes:?} {tile:?}"));
        }
    }
}

/// Targets without `wgmma` multiply in f32.
#[test]
fn images_of_other_targets_match_the_reference() {
    let mut data = Data::new("targets of split products");
    for target in [75, 80, 86].map(SmTarget::portable) {
        let device = Device::with_images_for(target);
        for op in OPS {
            let shape = shape([72, 128, 256]);
            let ([a, b, _], _) = op.lens(shape);
            let (a, b) = (data.uniform(a, 2.0), data.uniform(b, 2.0));
            for splits in [1, 2] {
                let case = Case { splits, ..Case::new(op, shape, [&a, &b]) };
                let [portable] = tiles_of(target, SPLIT_F16) else { panic!() };
                let error = case.error(&case.run(&device, *portable));
                assert!(error <= case.bound(), "{target} {op:?} {splits}: {error}");
            }
        }
    }
}

#[test]
fn errors_name_the_wrong_operand() {
    let device = Device::new();
    let x = device.unwritten(8 * 16);
    let out = unwritten(&device, 8, 16);
    let good = Split { x, column_scales: None, out, rows: 8, columns: 16 };
    assert!(good.launch().is_ok());
    let refused = |split: Split<u64>, text: &str| {
        let error = split.launch().unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    };
    refused(Split { rows: 7, ..good }, "x");
    refused(Split { column_scales: Some(x), ..good }, "column_scales");
    refused(Split { out: SplitMatrix { scales: x, ..out }, ..good }, "the scales of out");
    let short = out.terms.slice(0..8);
    refused(Split { out: SplitMatrix { terms: short, ..out }, ..good }, "the terms of out");
    refused(Split { out: SplitMatrix { term_count: 3, ..out }, ..good }, "one term or two");
    let narrow = |columns| {
        let (x, out) = (device.unwritten(8 * columns), unwritten(&device, 8, columns));
        Split { x, column_scales: None, out, rows: 8, columns }
    };
    refused(narrow(12), "multiple of 8");
    let shifted = device.unwritten(8 * 16 + 1).slice(1..129);
    refused(Split { x: shifted, ..good }, "multiples of 16 bytes");

    // A split matrix is only multiplied by another split matrix, and not in bf16.
    let (w, y, shape) = (device.unwritten(24 * 16), device.unwritten(8 * 24), shape([8, 16, 24]));
    let (bias, alpha, accumulate) = (None, 1.0, false);
    let error = Fprop { x: out, w, bias, y, shape, alpha, accumulate }.launch().unwrap_err();
    assert!(matches!(error, KernelError::UnsupportedDType { .. }), "{error}");
    let w = unwritten(&device, 24, 16);
    let product = Fprop { x: out, w, bias, y, shape, alpha, accumulate };
    assert!(product.launch().is_ok());
    let refused = |product: Fprop<u64, SplitMatrix<u64>, SplitMatrix<u64>>, text: &str| {
        let error = product.launch().unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    };
    let one_term = |matrix: SplitMatrix<u64>| SplitMatrix {
        terms: matrix.terms.slice(0..matrix.len()),
        term_count: 1,
        ..matrix
    };
    assert!(Fprop { w: one_term(w), ..product }.launch().is_ok());
    refused(Fprop { x: one_term(out), ..product }, "only the second operand");
    refused(Fprop { w: SplitMatrix { scales: out.scales, ..w }, ..product }, "the scales of b");
    refused(Fprop { x: SplitMatrix { scales: w.scales, ..out }, ..product }, "the scales of a");
    let partials = device.unwritten(2 * 8 * 24);
    let in_splits = FpropSplitK { x: out, w, partials, shape, splits: 2 };
    let error = in_splits.launch().unwrap_err().to_string();
    assert!(error.contains("multiple of 64"), "{error}");
    let error = product.launch_in(DType::Bf16);
    assert!(matches!(error, Err(KernelError::UnsupportedDType { .. })));
}
