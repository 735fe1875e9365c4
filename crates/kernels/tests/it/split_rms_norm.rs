//! RMSNorm and its backward pass, fused with the split into f16 terms.

use retrograph_kernels::norm::reference::rms_norm::{rms_norm, rms_norm_backward};
use retrograph_kernels::ops::{
    ResidualAdd, RmsNorm, RmsNormBackward, SplitMatrix, SplitRmsNorm, SplitRmsNormBackward,
};
use retrograph_kernels::{KernelError, Launch, SmTarget, View};

use crate::harness::Device;
use crate::split_products::unwritten;
use crate::split_swiglu::{same, split, values, values_of};
use crate::support::numbers::{Data, doubles, same_bits};

/// Zero, one vec4 in the last warp, several rows per block, and rows for each number of vec4s per
/// thread, or more.
const SIZES: [[usize; 2]; 11] = [
    [0, 8],
    [3, 0],
    [1, 8],
    [5, 24],
    [600, 8],
    [3, 1024],
    [2, 1536],
    [7, 2056],
    [2, 4096],
    [2, 4104],
    [1, 8200],
];

/// Numbers of one power of ten in each row, from 1e-30 to 1e30.
fn of_each_power(data: &mut Data, [rows, columns]: [usize; 2]) -> Vec<f32> {
    let powers = (0..rows).map(|row| 10_f32.powi(-30 + (row as i32 * 7) % 61));
    powers.flat_map(|power| data.uniform(columns, power)).collect()
}

/// Runs `launch` twice. Both must write the same bits.
fn twice(device: &Device, launch: Launch<u64>, split: SplitMatrix<u64>, what: &str) {
    device.run(&launch);
    let first = device.download::<f32>(split.scales);
    device.run(&launch);
    same_bits(&device.download::<f32>(split.scales), &first, &format!("repeated, {what}"));
}

#[test]
fn norms_are_split_with_the_bits_of_two_launches() {
    check_norms(&Device::new(), &SIZES);
    for target in [75, 80].map(SmTarget::portable) {
        check_norms(&Device::with_images_for(target), &[[2, 1032], [1, 8200]]);
    }
}

fn check_norms(device: &Device, sizes: &[[usize; 2]]) {
    let mut data = Data::new("split norm");
    for &sizes @ [rows, width] in sizes {
        let gamma = device.upload(&data.uniform(width, 2.0));
        for (of, eps) in [(of_each_power as fn(&mut Data, _) -> _, 0.0), (values, 1e-6)] {
            let x = device.upload(&of(&mut data, sizes));
            let residual = device.upload(&of(&mut data, sizes));
            for (adds, writes) in [(false, true), (true, false), (true, true)] {
                let what = format!("{sizes:?}, residual {adds}, y {writes}");
                let matrix = || device.unwritten(rows * width);
                let add = || ResidualAdd { residual: residual.into(), sum: matrix() };
                let (added, y, rstd) = (adds.then(add), matrix(), device.unwritten(rows));
                let plain = RmsNorm { x, residual: added, gamma, y, rstd, rows, width, eps };
                device.run(&plain.launch().unwrap());
                let fused = SplitRmsNorm {
                    x,
                    residual: adds.then(add),
                    gamma,
                    y: writes.then(matrix),
                    split: unwritten(device, rows, width),
                    rstd: device.unwritten(rows),
                    rows,
                    width,
                    eps,
                };
                twice(device, fused.launch().unwrap(), fused.split, &what);
                same(device, fused.split, split(device, y, None, sizes), &what);
                let sums = [fused.residual, added].map(|add| add.map(|add| add.sum));
                let pairs =
                    [(Some(fused.rstd), Some(rstd)), (sums[0], sums[1]), (fused.y, Some(y))];
                for (found, expected) in pairs {
                    let Some((found, expected)) = found.zip(expected) else { continue };
                    let [found, expected] = [found, expected].map(|it| device.download::<f32>(it));
                    same_bits(&found, &expected, &what);
                }
            }
        }
    }
}

#[test]
fn gradients_of_norms_are_split_with_the_bits_of_two_launches() {
    check_gradients(&Device::new(), &SIZES);
    for target in [75, 80].map(SmTarget::portable) {
        check_gradients(&Device::with_images_for(target), &[[2, 1032], [1, 4104]]);
    }
}

fn check_gradients(device: &Device, sizes: &[[usize; 2]]) {
    let mut data = Data::new("split norm backward");
    for &sizes @ [rows, width] in sizes {
        let gamma = device.upload(&data.uniform(width, 2.0));
        let partial_rows = RmsNormBackward::<u64>::partial_rows(rows);
        let factors: Vec<_> = (0..width).map(|at| (at as f32 % 60.0 - 30.0).exp2()).collect();
        let factors = device.upload(&factors);
        for of in [of_each_power as fn(&mut Data, _) -> _, values] {
            let [x, before] = [(); 2].map(|()| device.upload(&of(&mut data, sizes)));
            let rstd = device.upload(&data.uniform(rows, 1.0));
            let grads: Vec<View<u64, f32>> =
                [(); 3].map(|()| device.upload(&of(&mut data, sizes))).to_vec();
            for (count, accumulate, trained) in
                [(1, false, true), (2, true, false), (3, true, true)]
            {
                let what = format!("{sizes:?}, {count} gradients, accumulate {accumulate}");
                let grad_input = || device.upload(&device.download::<f32>(before));
                let partials = || trained.then(|| device.unwritten(partial_rows * width));
                let grad_out = &grads[..count];
                let tensors: Vec<_> = grad_out.iter().map(|grad| (*grad).into()).collect();
                let plain = RmsNormBackward {
                    x,
                    gamma,
                    rstd,
                    grad_out: &tensors,
                    grad_input: grad_input(),
                    gamma_partials: partials(),
                    rows,
                    width,
                    accumulate,
                };
                device.run(&plain.launch().unwrap());
                let fused = SplitRmsNormBackward {
                    x,
                    gamma,
                    rstd,
                    grad_out,
                    grad_input: grad_input(),
                    column_scales: accumulate.then_some(factors),
                    split: unwritten(device, rows, width),
                    gamma_partials: partials(),
                    rows,
                    width,
                    accumulate,
                };
                device.run(&fused.launch().unwrap());
                let expected = split(device, plain.grad_input, fused.column_scales, sizes);
                same(device, fused.split, expected, &what);
                let gammas = fused.gamma_partials.zip(plain.gamma_partials);
                let pairs = [Some((fused.grad_input, plain.grad_input)), gammas];
                for (found, expected) in pairs.into_iter().flatten() {
                    let [found, expected] = [found, expected].map(|it| device.download::<f32>(it));
                    same_bits(&found, &expected, &what);
                }
            }
        }
    }
}

/// Checks terms and scales against f64.
#[test]
fn the_terms_add_up_to_the_reference() {
    let (mut data, device) = (Data::new("split norm in f64"), Device::new());
    let [rows, width] = [6, 1040];
    let [x, grad] = [2.0, 1.0].map(|range| data.uniform(rows * width, range));
    let gamma = data.uniform(width, 2.0);
    let [of_x, of_grad, of_gamma] = [&x, &grad, &gamma].map(|values| device.upload(values));
    let (rstd, eps) = (device.unwritten(rows), 1e-6);
    let forward = SplitRmsNorm {
        x: of_x,
        residual: None,
        gamma: of_gamma,
        y: None,
        split: unwritten(&device, rows, width),
        rstd,
        rows,
        width,
        eps,
    };
    device.run(&forward.launch().unwrap());
    let backward = SplitRmsNormBackward {
        x: of_x,
        gamma: of_gamma,
        rstd,
        grad_out: &[of_grad],
        grad_input: device.unwritten(rows * width),
        column_scales: None,
        split: unwritten(&device, rows, width),
        gamma_partials: None,
        rows,
        width,
        accumulate: false,
    };
    device.run(&backward.launch().unwrap());
    let [x, grad, gamma] = [&x, &grad, &gamma].map(|values| doubles(values));
    let y = rms_norm(&x, &gamma, eps.into()).y;
    let grad_input = rms_norm_backward(&x, &gamma, &grad, eps.into()).grad_input;
    for (split, expected) in [(forward.split, y), (backward.split, grad_input)] {
        let found = values_of(&device, split, width);
        let largest = expected.iter().fold(0.0, |largest: f64, it| largest.max(it.abs()));
        let errors = found.iter().zip(&expected).map(|(found, it)| (found - it).abs());
        let error = errors.fold(0.0, f64::max);
        assert!(error <= 2e-6 * largest, "{error} of {largest}");
    }
}

#[test]
fn errors_name_the_wrong_operand() {
    let device = Device::new();
    let (matrix, row) = (|| device.unwritten(8 * 16), || device.unwritten(16));
    let refused = |launch: Result<Launch<u64>, KernelError>, text: &str| {
        let error = launch.unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    };
    let (x, gamma, split, rstd) = (matrix(), row(), unwritten(&device, 8, 16), device.unwritten(8));
    let add = ResidualAdd { residual: matrix().into(), sum: matrix() };
    let (rows, width, eps) = (8, 16, 1e-6);
    let residual = Some(add);
    let good =
        SplitRmsNorm { x, residual, gamma, y: Some(matrix()), split, rstd, rows, width, eps };
    assert!(good.launch().is_ok());
    let (short, shifted) = (x.slice(0..120), device.unwritten(8 * 16 + 1).slice(1..129));
    refused(SplitRmsNorm { x: short, ..good }.launch(), "x");
    refused(SplitRmsNorm { x: shifted, ..good }.launch(), "multiples of 16 bytes");
    refused(SplitRmsNorm { gamma: short, ..good }.launch(), "gamma");
    refused(SplitRmsNorm { y: Some(short), ..good }.launch(), "y");
    refused(SplitRmsNorm { rstd: gamma, ..good }.launch(), "rstd");
    refused(SplitRmsNorm { eps: -1.0, ..good }.launch(), "eps");
    refused(SplitRmsNorm { width: 12, ..good }.launch(), "multiple of 8");
    let wrong = Some(ResidualAdd { residual: short.into(), ..add });
    refused(SplitRmsNorm { residual: wrong, ..good }.launch(), "residual");
    let wrong = Some(ResidualAdd { sum: short, ..add });
    refused(SplitRmsNorm { residual: wrong, ..good }.launch(), "sum");
    let bf16 = device.upload(&vec![half::bf16::ZERO; 8 * 16]);
    let wrong = Some(ResidualAdd { residual: bf16.into(), ..add });
    refused(SplitRmsNorm { residual: wrong, ..good }.launch(), "bf16");
    let one = SplitMatrix { terms: split.terms.slice(0..128), term_count: 1, ..split };
    refused(SplitRmsNorm { split: one, ..good }.launch(), "two terms");

    let good = SplitRmsNormBackward {
        x,
        gamma,
        rstd,
        grad_out: &[matrix()],
        grad_input: matrix(),
        column_scales: Some(row()),
        split,
        gamma_partials: Some(matrix()),
        rows,
        width,
        accumulate: true,
    };
    assert!(good.launch().is_ok());
    refused(SplitRmsNormBackward { grad_out: &[], ..good }.launch(), "one to three");
    refused(SplitRmsNormBackward { grad_out: &[x; 4], ..good }.launch(), "one to three");
    refused(SplitRmsNormBackward { grad_out: &[x, short], ..good }.launch(), "grad_out");
    refused(SplitRmsNormBackward { grad_input: short, ..good }.launch(), "grad_input");
    let column_scales = Some(short);
    refused(SplitRmsNormBackward { column_scales, ..good }.launch(), "column_scales");
    refused(
        SplitRmsNormBackward { gamma_partials: Some(short), ..good }.launch(),
        "gamma_partials",
    );
    let gamma_partials = Some(shifted);
    refused(SplitRmsNormBackward { gamma_partials, ..good }.launch(), "multiples of 16 bytes");
    refused(SplitRmsNormBackward { split: one, ..good }.launch(), "two terms");
}
