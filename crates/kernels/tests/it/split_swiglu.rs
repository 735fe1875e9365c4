//! SwiGLU and its gradients, fused with the split into f16 terms.

use half::f16;
use retrograph_kernels::elementwise::reference::silu;
use retrograph_kernels::ops::{
    GatedActivation, Glu, GluBackward, Split, SplitGradient, SplitMatrix, SplitSwiGlu,
    SplitSwiGluBackward,
};
use retrograph_kernels::{KernelError, Launch, View};

use crate::harness::Device;
use crate::split_products::unwritten;
use crate::support::numbers::{Data, doubles, same_bits};

/// Zero, rows for one thread, rows for each number of groups per thread, and rows that do not fit
/// in registers.
const SIZES: [[usize; 2]; 10] = [
    [0, 8],
    [3, 0],
    [1, 8],
    [5, 24],
    [3, 1024],
    [7, 1032],
    [2, 4104],
    [3, 8960],
    [2, 9224],
    [1, 18440],
];

/// Values of many magnitudes, zeros of both signs, and infinity and NaN in the last row.
pub(crate) fn values(data: &mut Data, [rows, columns]: [usize; 2]) -> Vec<f32> {
    let mut values = data.spread(rows * columns);
    let special = [0.0, -0.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e-42, -88.0, 1e30];
    let last = rows.saturating_sub(1) * columns;
    values[last..].iter_mut().zip(special).for_each(|(value, special)| *value = special);
    values
}

/// Compares terms and scales of two matrices bit for bit.
pub(crate) fn same(
    device: &Device,
    found: SplitMatrix<u64>,
    expected: SplitMatrix<u64>,
    what: &str,
) {
    let [of_found, of_expected] = [found, expected].map(|it| device.download::<f32>(it.scales));
    same_bits(&of_found, &of_expected, &format!("scales, {what}"));
    let [found, expected] = [found, expected].map(|it| device.download::<f16>(it.terms));
    let wrong = found.iter().zip(&expected).position(|(a, b)| a.to_bits() != b.to_bits());
    let pair = wrong.map(|at| (at, found[at], expected[at]));
    assert_eq!(pair, None, "{what}: of {} terms", found.len());
}

/// Splits `x` by [`Split`].
pub(crate) fn split(
    device: &Device,
    x: View<u64, f32>,
    column_scales: Option<View<u64, f32>>,
    [rows, columns]: [usize; 2],
) -> SplitMatrix<u64> {
    let out = unwritten(device, rows, columns);
    device.run(&Split { x, column_scales, out, rows, columns }.launch().unwrap());
    out
}

#[test]
fn swiglu_is_split_with_the_bits_of_two_launches() {
    let (mut data, device) = (Data::new("split swiglu"), Device::new());
    for sizes @ [rows, columns] in SIZES {
        let inputs = [(); 2].map(|()| values(&mut data, sizes));
        let [gate, up] = inputs.each_ref().map(|values| device.upload(values));
        let expected = device.unwritten(rows * columns);
        device.run(
            &Glu { activation: GatedActivation::Silu, gate, up, out: expected }.launch().unwrap(),
        );
        let expected_split = split(&device, expected, None, sizes);
        for writes in [true, false] {
            let out = writes.then(|| device.unwritten(rows * columns));
            let launch = SplitSwiGlu {
                gate,
                up,
                out,
                split: unwritten(&device, rows, columns),
                rows,
                columns,
            };
            device.run(&launch.launch().unwrap());
            same(&device, launch.split, expected_split, &format!("{sizes:?}"));
            if let Some(out) = out {
                let [out, expected] = [out, expected].map(|view| device.download::<f32>(view));
                same_bits(&out, &expected, &format!("{sizes:?}"));
            }
        }
    }
}

/// The elements of a split matrix.
pub(crate) fn values_of(device: &Device, split: SplitMatrix<u64>, columns: usize) -> Vec<f64> {
    let terms: Vec<f16> = device.download(split.terms);
    let scales: Vec<f32> = device.download(split.scales);
    let (high, low) = terms.split_at(terms.len() / 2);
    let sums = high.iter().zip(low).map(|(high, low)| high.to_f64() + low.to_f64());
    sums.enumerate().map(|(at, sum)| sum * f64::from(scales[at / columns])).collect()
}

/// Checks terms and scales against f64.
#[test]
fn the_terms_of_swiglu_add_up_to_the_reference() {
    let (mut data, device) = (Data::new("split swiglu in f64"), Device::new());
    let [rows, columns] = [6, 1040];
    let inputs = [(); 2].map(|()| data.uniform(rows * columns, 6.0));
    let [gate, up] = inputs.each_ref().map(|values| device.upload(values));
    let split = unwritten(&device, rows, columns);
    device.run(&SplitSwiGlu { gate, up, out: None, split, rows, columns }.launch().unwrap());
    let found = values_of(&device, split, columns);
    let [gate, up] = inputs.each_ref().map(|values| doubles(values));
    let expected = silu::swiglu(&gate, &up);
    let mut largest = 0.0_f64;
    for (found, expected) in found.iter().zip(&expected) {
        let unit = expected.abs() * 1e-6 + 36.0 * (-39.0_f64).exp2();
        largest = largest.max((found - expected).abs() / unit);
    }
    assert!(largest <= 1.0, "{largest} of the bound");
}

#[test]
fn gradients_are_split_with_the_bits_of_two_launches() {
    let (mut data, device) = (Data::new("split swiglu backward"), Device::new());
    for sizes @ [rows, columns] in SIZES {
        let inputs = [(); 3].map(|()| values(&mut data, sizes));
        let [gate, up, grad_out] = inputs.each_ref().map(|values| device.upload(values));
        let expected = [(); 2].map(|()| device.unwritten(rows * columns));
        let [grad_gate, grad_up] = expected;
        let activation = GatedActivation::Silu;
        let launch = GluBackward { activation, gate, up, grad_out, grad_gate, grad_up };
        device.run(&launch.launch().unwrap());
        // Gate and up have different column scales.
        let column_scales = [60.0, 24.0].map(|range: f32| {
            let factor = |at: usize| (at as f32 % range - range / 2.0).exp2();
            device.upload(&(0..columns).map(factor).collect::<Vec<_>>())
        });
        for (has_factors, writes) in [(true, false), (false, true), (true, true)] {
            let gradient = |at: usize| SplitGradient {
                column_scales: has_factors.then_some(column_scales[at]),
                out: writes.then(|| device.unwritten(rows * columns)),
                split: unwritten(&device, rows, columns),
            };
            let (grad_gate, grad_up) = (gradient(0), gradient(1));
            let launch =
                SplitSwiGluBackward { gate, up, grad_out, grad_gate, grad_up, rows, columns };
            device.run(&launch.launch().unwrap());
            for (gradient, expected) in [grad_gate, grad_up].into_iter().zip(expected) {
                let what = format!("{sizes:?}, column_scales {has_factors}");
                let two_launches = split(&device, expected, gradient.column_scales, sizes);
                same(&device, gradient.split, two_launches, &what);
                if let Some(out) = gradient.out {
                    let [out, expected] = [out, expected].map(|view| device.download::<f32>(view));
                    same_bits(&out, &expected, &what);
                }
            }
        }
    }
}

#[test]
fn errors_name_the_wrong_operand() {
    let device = Device::new();
    let matrix = || device.unwritten(8 * 16);
    let refused = |launch: Result<Launch<u64>, KernelError>, text: &str| {
        let error = launch.unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    };
    let (gate, up, split) = (matrix(), matrix(), unwritten(&device, 8, 16));
    let good = SplitSwiGlu { gate, up, out: Some(matrix()), split, rows: 8, columns: 16 };
    assert!(good.launch().is_ok());
    let (short, shifted) = (gate.slice(0..120), device.unwritten(8 * 16 + 1).slice(1..129));
    refused(SplitSwiGlu { gate: short, ..good }.launch(), "gate");
    refused(SplitSwiGlu { up: short, ..good }.launch(), "up");
    refused(SplitSwiGlu { out: Some(short), ..good }.launch(), "out");
    refused(SplitSwiGlu { up: shifted, ..good }.launch(), "multiples of 16 bytes");
    refused(SplitSwiGlu { columns: 12, ..good }.launch(), "multiple of 8");
    let one = SplitMatrix { terms: split.terms.slice(0..128), term_count: 1, ..split };
    refused(SplitSwiGlu { split: one, ..good }.launch(), "two terms");
    let scales = SplitMatrix { scales: short, ..split };
    refused(SplitSwiGlu { split: scales, ..good }.launch(), "the scales of the product");

    let gradient = || SplitGradient {
        column_scales: Some(device.unwritten(16)),
        out: Some(matrix()),
        split: unwritten(&device, 8, 16),
    };
    let (grad_out, grad_gate, grad_up) = (matrix(), gradient(), gradient());
    let good = SplitSwiGluBackward { gate, up, grad_out, grad_gate, grad_up, rows: 8, columns: 16 };
    assert!(good.launch().is_ok());
    refused(SplitSwiGluBackward { grad_out: short, ..good }.launch(), "grad_out");
    let wrong = SplitGradient { out: Some(short), ..grad_gate };
    refused(SplitSwiGluBackward { grad_gate: wrong, ..good }.launch(), "grad_gate");
    let wrong = SplitGradient { column_scales: Some(short), ..grad_up };
    refused(
        SplitSwiGluBackward { grad_up: wrong, ..good }.launch(),
        "the column scales of grad_up",
    );
    let wrong = SplitGradient { split: one, ..grad_gate };
    refused(SplitSwiGluBackward { grad_gate: wrong, ..good }.launch(), "two terms");
}
