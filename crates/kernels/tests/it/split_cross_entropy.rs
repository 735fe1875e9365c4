//! Cross-entropy and its gradient, fused with the split into f16 terms.

use half::{bf16, f16};
use retrograph_kernels::loss::reference::cross_entropy_gradient;
use retrograph_kernels::ops::{CrossEntropy, GradLogits, IGNORED_TARGET, SplitMatrix};
use retrograph_kernels::{KernelError, Launch, SmTarget, View};

use crate::cross_entropy::losses_only;
use crate::harness::Device;
use crate::split_products::unwritten;
use crate::split_swiglu::{same, split, values, values_of};
use crate::support::numbers::{Data, doubles, same_bits};

/// Zero, both entries, and several vectors per step with and without a remainder.
const SIZES: [[usize; 2]; 9] =
    [[0, 8], [1, 8], [5, 32], [9, 256], [2, 1024], [3, 1032], [2, 5000], [2, 16_384], [2, 33_000]];

/// Powers of two between 2^−30 and 2^29.
fn column_scales(device: &Device, vocab: usize) -> View<u64, f32> {
    let scales: Vec<_> = (0..vocab).map(|at| (at as f32 % 60.0 - 30.0).exp2()).collect();
    device.upload(&scales)
}

/// The first of two launches, which writes the gradient in f32. Three targets count.
fn unsplit(
    device: &Device,
    logits: &[f32],
    targets: &[u32],
    order: Option<View<u64, u32>>,
    grad: View<u64, f32>,
    vocab: usize,
) -> CrossEntropy<u64> {
    let loss = losses_only(device, device.upload(logits), targets, 3, vocab);
    CrossEntropy { order, grad_logits: GradLogits::Separate(grad.into()), ..loss }
}

/// Compares with two launches.
fn check(device: &Device, logits: &[f32], [rows, vocab]: [usize; 2], what: &str) {
    // Ignored, outside of the vocabulary, and inside.
    let kinds = [vocab as u32 - 1, 0, IGNORED_TARGET, vocab as u32 / 2, vocab as u32];
    let targets: Vec<_> = kinds.into_iter().cycle().take(rows).collect();
    let grad = device.unwritten(rows * vocab);
    let two_launches = unsplit(device, logits, &targets, None, grad, vocab);
    device.run(&two_launches.launch().unwrap());
    for column_scales in [None, Some(column_scales(device, vocab))] {
        let terms = unwritten(device, rows, vocab);
        let grad_logits = GradLogits::Split { column_scales, split: terms };
        let fused = CrossEntropy { losses: device.unwritten(rows), grad_logits, ..two_launches };
        device.run(&fused.launch().unwrap());
        let expected = split(device, grad, column_scales, [rows, vocab]);
        same(device, terms, expected, what);
        let losses = [fused.losses, two_launches.losses].map(|it| device.download::<f32>(it));
        same_bits(&losses[0], &losses[1], what);
        // A second run overwrites the results with the same bits.
        device.run(&fused.launch().unwrap());
        same(device, terms, expected, &format!("repeated, {what}"));
    }
}

#[test]
fn gradients_are_split_with_the_bits_of_two_launches() {
    let (mut data, device) = (Data::new("split cross-entropy"), Device::new());
    for sizes @ [rows, vocab] in SIZES {
        for (kind, logits) in [
            ("near", data.uniform(rows * vocab, 8.0)),
            ("equal", vec![3.0; rows * vocab]),
            ("special", values(&mut data, sizes)),
            ("wide", data.uniform(rows * vocab, 300.0)),
        ] {
            check(&device, &logits, sizes, &format!("{sizes:?}, {kind}"));
        }
    }
}

#[test]
fn other_targets_have_the_bits_of_two_launches() {
    let mut data = Data::new("split cross-entropy of targets");
    for target in [75, 80].map(SmTarget::portable) {
        let device = Device::with_images_for(target);
        for sizes @ [rows, vocab] in [[5, 40], [5, 2056]] {
            let logits = data.uniform(rows * vocab, 8.0);
            check(&device, &logits, sizes, &format!("{target}, {sizes:?}"));
        }
    }
}

#[test]
fn rows_in_an_order_up_to_a_limit_have_the_bits_of_two_launches() {
    let (mut data, device) = (Data::new("order of split cross-entropy"), Device::new());
    for [rows, vocab] in [[7, 40], [5, 2056]] {
        let logits = data.uniform(rows * vocab, 8.0);
        let targets: Vec<_> = [3, IGNORED_TARGET, 0].into_iter().cycle().take(rows).collect();
        // Token 1 has no target and comes first; tokens 0, rows − 1, … follow.
        let order: Vec<_> = (0..rows as u32).map(|row| (row + 2) % rows as u32).rev().collect();
        let (order, grad) = (Some(device.upload(&order)), device.unwritten(rows * vocab));
        let two_launches = unsplit(&device, &logits, &targets, order, grad, vocab);
        device.run(&two_launches.launch().unwrap());
        let column_scales = Some(column_scales(&device, vocab));
        let expected = split(&device, grad, column_scales, [rows, vocab]);
        for limit in [0, 1, 4, rows] {
            let row_limit = device.upload(&[limit as u32]);
            let terms = unwritten(&device, rows, vocab);
            let grad_logits = GradLogits::Split { column_scales, split: terms };
            let fused =
                CrossEntropy { losses: device.unwritten(rows), grad_logits, ..two_launches };
            device.run(&fused.launch().unwrap().row_limit(row_limit).unwrap());
            let what = format!("{rows} × {vocab}, limit {limit}");
            let limited = two_launches.launch().unwrap().row_limit(row_limit).unwrap();
            device.run(&limited);
            let losses = [fused.losses, two_launches.losses].map(|it| device.download::<f32>(it));
            same_bits(&losses[0], &losses[1], &what);
            for term in 0..2 {
                let first = term * rows * vocab;
                let part = |matrix: SplitMatrix<u64>, rows: std::ops::Range<usize>| {
                    let elements = first + rows.start * vocab..first + rows.end * vocab;
                    let found: Vec<f16> = device.download(matrix.terms.slice(elements));
                    found.into_iter().map(f16::to_bits).collect::<Vec<_>>()
                };
                assert!(part(terms, 0..limit) == part(expected, 0..limit), "{what}");
                let untouched = vec![f16::NAN.to_bits(); (rows - limit) * vocab];
                assert!(part(terms, limit..rows) == untouched, "{what}");
            }
            let scales = [terms, expected].map(|it| device.download(it.scales.slice(0..limit)));
            same_bits(&scales[0], &scales[1], &what);
        }
    }
}

#[test]
fn the_terms_add_up_to_the_reference() {
    let (mut data, device) = (Data::new("split cross-entropy in f64"), Device::new());
    let [rows, vocab] = [3, 2000];
    let (values, targets) = (data.uniform(rows * vocab, 6.0), [7, 1999, IGNORED_TARGET]);
    let split = unwritten(&device, rows, vocab);
    let loss = losses_only(&device, device.upload(&values), &targets, 2, vocab);
    let grad_logits = GradLogits::Split { column_scales: None, split };
    device.run(&CrossEntropy { grad_logits, ..loss }.launch().unwrap());
    let expected = cross_entropy_gradient(&doubles(&values), &targets, vocab);
    let found = values_of(&device, split, vocab);
    // Two targets count.
    let errors = found.iter().zip(&expected).map(|(found, it)| (2.0 * found - it).abs());
    let error = errors.fold(0.0, f64::max);
    assert!(error <= 1e-6, "{error}");
}

#[test]
fn errors_name_the_wrong_operand() {
    let device = Device::new();
    let refused = |launch: Result<Launch<u64>, KernelError>, text: &str| {
        let error = launch.unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    };
    let (column_scales, split) = (Some(device.unwritten(16)), unwritten(&device, 8, 16));
    let grad_logits = GradLogits::Split { column_scales, split };
    let loss = losses_only(&device, device.unwritten(8 * 16), &[0; 8], 8, 16);
    let (targets, good) = (loss.targets, CrossEntropy { grad_logits, ..loss });
    assert!(good.launch().is_ok());
    let (short, shifted) = (device.unwritten(120), device.unwritten(8 * 16 + 1).slice(1..129));
    refused(CrossEntropy { logits: short, ..good }.launch(), "logits");
    refused(CrossEntropy { logits: shifted, ..good }.launch(), "multiples of 16 bytes");
    refused(CrossEntropy { targets: targets.slice(0..7), ..good }.launch(), "targets");
    refused(CrossEntropy { losses: short, ..good }.launch(), "losses");
    let order = Some(targets.slice(0..7));
    refused(CrossEntropy { order, ..good }.launch(), "order");
    refused(CrossEntropy { counted: targets, ..good }.launch(), "counted");
    refused(CrossEntropy { vocab: 12, ..good }.launch(), "multiple of 8");
    refused(CrossEntropy { vocab: 0, ..good }.launch(), "at least one logit");
    refused(CrossEntropy { softcap: Some(30.0), ..good }.launch(), "capped logits");
    let grad_logits = GradLogits::Split { column_scales: Some(short), split };
    refused(CrossEntropy { grad_logits, ..good }.launch(), "column_scales");
    let one = SplitMatrix { terms: split.terms.slice(0..128), term_count: 1, ..split };
    let grad_logits = GradLogits::Split { column_scales, split: one };
    refused(CrossEntropy { grad_logits, ..good }.launch(), "two terms");
    let rounded = losses_only(&device, View::<u64, bf16>::new(0, 8 * 16), &[0; 8], 8, 16);
    refused(CrossEntropy { grad_logits: good.grad_logits, ..rounded }.launch(), "f32");
}
