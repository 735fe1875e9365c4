//! Cross-entropy and its gradient against their references.

use half::bf16;
use retrograph_kernel_abi::loss::CROSS_ENTROPY;
use retrograph_kernels::elementwise::reference::softcap::{softcap, softcap_backward};
use retrograph_kernels::loss::reference::{cross_entropy, cross_entropy_gradient};
use retrograph_kernels::ops::{CrossEntropy, GradLogits, IGNORED_TARGET};
use retrograph_kernels::{Dispatch, KernelError, Launch, TensorView};

use crate::elementwise::rounds;
use crate::harness::Device;
use crate::support::numbers::{Data, Tolerance, differences, doubles, same_bits};

/// Threads per block of the entry with one block per row.
const BLOCK_THREADS: u32 = CROSS_ENTROPY.block_threads;

/// Rows and vocabularies: one, primes, a warp and one past it, both entries, several elements per
/// thread, and several vectors per step with and without a remainder.
const SIZES: [(usize, usize); 11] = [
    (0, 5),
    (1, 1),
    (3, 7),
    (5, 32),
    (6, 33),
    (9, 256),
    (2, 1024),
    (3, 1025),
    (2, 5003),
    (2, 16_384),
    (2, 33_000),
];

/// The dispatch of an entry: a warp per row (0), or a block per row (1).
fn dispatch(launch: &Launch<u64>, rows: usize, entry: usize) -> Dispatch {
    let (blocks, threads) = [(rows.div_ceil(4), 128), (rows, BLOCK_THREADS)][entry];
    let (grid, block) = ([blocks as u32, 1, 1], [threads, 1, 1]);
    let entry = launch.kernel().entries[entry];
    Dispatch { entry, grid, block, shared_bytes: 0, persistent: None }
}

/// Cross-entropy without order, gradient and cap.
pub(crate) fn losses_only<L>(
    device: &Device,
    logits: L,
    targets: &[u32],
    counted: u32,
    vocab: usize,
) -> CrossEntropy<u64, L> {
    CrossEntropy {
        logits,
        targets: device.upload(targets),
        losses: device.unwritten(targets.len()),
        order: None,
        grad_logits: GradLogits::None,
        counted: device.upload(&[counted]),
        rows: targets.len(),
        vocab,
        softcap: None,
    }
}

/// Losses and gradient, by warps (0) or by blocks (1).
fn run(logits: &[f32], targets: &[u32], vocab: usize, counted: u32, entry: usize) -> [Vec<f32>; 2] {
    let once = || {
        let device = Device::new();
        let loss = losses_only(&device, device.upload(logits), targets, counted, vocab);
        let loss = CrossEntropy { grad_logits: GradLogits::InPlace, ..loss };
        let launch = loss.launch().unwrap();
        let forced = dispatch(&launch, targets.len(), entry);
        device.run_as(&launch, forced);
        if launch.dispatch(device.target()).entry == forced.entry {
            assert_eq!(launch.dispatch(device.target()), forced);
        }
        [device.download(loss.losses), device.download(loss.logits)]
    };
    let (first, second) = (once(), once());
    same_bits(&first[0], &second[0], "the losses of two runs");
    same_bits(&first[1], &second[1], "the gradients of two runs");
    first
}

/// Compares a gradient with its reference: relative as for softmax, plus the relative error
/// `of_logits`. At the target the gradient is a probability minus 1. If the probability is close to
/// 1, its rounding errors remain: up to 2⁻²⁴ for each of about 16 operations (sums, reciprocal and
/// products).
#[track_caller]
fn check_gradient(
    found: &[f32],
    expected: &[f64],
    targets: &[u32],
    counted: u32,
    of_logits: f64,
    what: &str,
) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let vocab = found.len() / targets.len().max(1);
    let (relative, counted) = (1.5e-5 + of_logits, f64::from(counted.max(1)));
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        let at_target = targets[index / vocab] as usize == index % vocab;
        let absolute = if at_target { 1e-6 } else { 2e-7 };
        let tolerance = Tolerance::relative(relative).absolute(absolute / counted);
        tolerance.check(&[*found], &[*expected], &format!("gradient {what}, element {index}"));
    }
}

/// Compares with the reference.
#[track_caller]
fn check(logits: &[f32], targets: &[u32], vocab: usize, counted: u32, entry: usize) {
    let [losses, gradient] = run(logits, targets, vocab, counted, entry);
    let logits = doubles(logits);
    let expected = cross_entropy(&logits, targets, vocab);
    // Rounding of the difference to the maximum, of the sum and of its logarithm.
    let what = format!("{}×{vocab} entry {entry}", targets.len());
    let tolerance = Tolerance::relative(2e-6).absolute(2e-6);
    tolerance.check(&losses, &expected, &format!("losses {what}"));
    let expected = cross_entropy_gradient(&logits, targets, vocab);
    let expected: Vec<f64> = expected.iter().map(|g| g / f64::from(counted.max(1))).collect();
    check_gradient(&gradient, &expected, targets, counted, 0.0, &what);
}

#[test]
fn losses_and_gradients_match_the_reference() {
    let mut data = Data::new("cross_entropy");
    for ((rows, vocab), entry) in SIZES.iter().flat_map(|size| [0, 1].map(|entry| (*size, entry))) {
        for (scale, counted) in [(1.0, 1), (30.0, 8), (1e-30, 0), (1e30, 30_011)] {
            let logits = data.uniform(rows * vocab, scale);
            let targets: Vec<u32> = (0..rows).map(|row| (row * 31 % vocab) as u32).collect();
            check(&logits, &targets, vocab, counted, entry);
        }
    }
}

#[test]
fn unknown_tokens_give_nan_in_their_row_only() {
    let mut data = Data::new("cross_entropy tokens");
    for entry in [0, 1] {
        let logits = data.uniform(5 * 37, 2.0);
        let targets = [3, 37, 0, u32::MAX - 1, 36];
        check(&logits, &targets, 37, 1, entry);
        let [losses, gradient] = run(&logits, &targets, 37, 1, entry);
        assert_eq!(
            [0, 1, 2, 3, 4].map(|row| losses[row].is_nan()),
            [false, true, false, true, false]
        );
        for (row, gradient) in gradient.chunks(37).enumerate() {
            let nan = gradient.iter().filter(|g| g.is_nan()).count();
            assert_eq!(nan, if row % 2 == 1 { 37 } else { 0 }, "row {row}");
        }
    }
}

#[test]
fn ignored_targets_have_no_loss_and_no_gradient() {
    let mut data = Data::new("cross_entropy ignored");
    for ((rows, vocab), entry) in SIZES.iter().flat_map(|size| [0, 1].map(|entry| (*size, entry))) {
        let logits = data.uniform(rows * vocab, 3.0);
        let all: Vec<u32> = (0..rows).map(|row| (row * 17 % vocab) as u32).collect();
        let ignored = |row: usize| row % 3 != 1;
        let some = |(row, &target): (usize, &u32)| if ignored(row) { u32::MAX } else { target };
        let targets: Vec<u32> = all.iter().enumerate().map(some).collect();
        let counted = targets.iter().filter(|target| **target != IGNORED_TARGET).count() as u32;
        check(&logits, &targets, vocab, counted, entry);
        let [losses, gradient] = run(&logits, &targets, vocab, counted, entry);
        let [full, whole] = run(&logits, &all, vocab, counted, entry);
        for row in 0..rows {
            let places = row * vocab..(row + 1) * vocab;
            let (found, other) = (&gradient[places.clone()], &whole[places]);
            if ignored(row) {
                assert_eq!(losses[row].to_bits(), 0, "row {row}");
                assert!(found.iter().all(|g| *g == 0.0), "row {row}");
            } else {
                assert_eq!(losses[row].to_bits(), full[row].to_bits(), "row {row}");
                same_bits(found, other, "a row beside ignored ones");
            }
        }
    }
}

#[test]
fn logits_of_an_ignored_row_are_not_read() {
    for (entry, special) in [0, 1].into_iter().flat_map(|e| [(e, f32::NAN), (e, f32::INFINITY)]) {
        let mut logits = vec![0.5; 2 * 40];
        logits[7] = special;
        check(&logits, &[IGNORED_TARGET, 3], 40, 1, entry);
        let [losses, gradient] = run(&logits, &[IGNORED_TARGET, 3], 40, 1, entry);
        assert_eq!(losses[0], 0.0);
        assert!(gradient[..40].iter().all(|g| *g == 0.0));
        assert!(losses[1].is_finite() && gradient[40..].iter().all(|g| g.is_finite()));
    }
}

#[test]
fn special_logits_are_as_documented() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    for entry in [0, 1] {
        for specials in [vec![nan], vec![inf], vec![-inf], vec![-inf; 40], vec![nan; 40]] {
            for (start, target) in [(0, 0), (17, 0), (39, 39), (5, 5)] {
                let mut logits: Vec<f32> = (0..3 * 40).map(|i| (i % 7) as f32).collect();
                for (x, special) in logits[40..80].iter_mut().skip(start).zip(&specials) {
                    *x = *special;
                }
                check(&logits, &[1, target, 2], 40, 1, entry);
            }
        }
    }
}

#[test]
fn the_gradient_matches_finite_differences() {
    let mut data = Data::new("cross_entropy differences");
    let (rows, vocab) = (4, 11);
    let logits = data.uniform(rows * vocab, 3.0);
    let targets = [0, 10, 4, 4];
    let [_, gradient] = run(&logits, &targets, vocab, rows as u32, 0);
    let mean = |x: &[f64]| cross_entropy(x, &targets, vocab).iter().sum::<f64>() / rows as f64;
    let expected = differences(&doubles(&logits), 1e-4, mean);
    Tolerance::relative(1e-5).absolute(1e-6).check(&gradient, &expected, "differences");
}

/// Vocabularies that are multiples of four and others, by warps and by blocks.
#[test]
fn the_gradient_is_written_only_to_the_given_buffer() {
    let mut data = Data::new("cross_entropy forms");
    let sizes = [(3, 28), (2, 1040), (5, 37)];
    for ((rows, vocab), shift) in sizes.into_iter().flat_map(|size| [(size, 0), (size, 1)]) {
        let device = Device::new();
        let (len, numbers) = (rows * vocab, data.uniform(rows * vocab, 4.0));
        let tokens: Vec<u32> = (0..rows).map(|row| (row * 13 % vocab) as u32).collect();
        let place = || {
            let padded = [&vec![f32::NAN; shift], numbers.as_slice()].concat();
            device.upload(&padded).slice(shift..shift + len)
        };
        let loss = losses_only(&device, place(), &tokens, rows as u32, vocab);
        let CrossEntropy { logits, losses, .. } = loss;
        device.run(&loss.launch().unwrap());
        let alone = device.download(losses);
        let whole = device.unwritten(len);
        let grad_logits = GradLogits::Separate(whole.into());
        device.run(&CrossEntropy { grad_logits, ..loss }.launch().unwrap());
        same_bits(&device.download(losses), &alone, "losses");
        rounds(&device, len, &|to| {
            CrossEntropy { grad_logits: GradLogits::Separate(to), ..loss }.launch()
        });
        same_bits(&device.download(logits), &numbers, "logits that are only read");
        let (logits, whole) = (place(), device.download(whole));
        let grad_logits = GradLogits::InPlace;
        device.run(&CrossEntropy { logits, grad_logits, ..loss }.launch().unwrap());
        same_bits(&device.download(logits), &whole, "the gradient in place of the logits");
        same_bits(&device.download(losses), &alone, "losses");
    }
}

/// With logits in bf16, losses and gradients match the reference within the bounds of f32.
#[test]
fn logits_in_bf16_match_the_reference() {
    let mut data = Data::new("cross_entropy bf16");
    let cases = SIZES.into_iter().flat_map(|size| [(size, 0), (size, 1), (size, 8)]);
    for (((rows, vocab), shift), entry) in cases.flat_map(|case| [(case, 0), (case, 1)]) {
        let device = Device::new();
        let logits = data.uniform(rows * vocab, 20.0).into_iter().map(bf16::from_f32);
        let logits: Vec<bf16> = logits.collect();
        let exact: Vec<f64> = logits.iter().copied().map(f64::from).collect();
        let padded = [&vec![bf16::NAN; shift][..], &logits, &[bf16::MAX; 9]].concat();
        let mut tokens: Vec<u32> = (0..rows).map(|row| (row * 31 % vocab) as u32).collect();
        tokens.iter_mut().skip(3).step_by(4).for_each(|token| *token = IGNORED_TARGET);
        let (whole, len) = (device.upload(&padded), rows * vocab);
        let logits = whole.slice(shift..shift + len);
        let loss = losses_only(&device, logits, &tokens, rows as u32, vocab);
        let run = |grad_logits| {
            let launch = CrossEntropy { grad_logits, ..loss }.launch().unwrap();
            device.run_as(&launch, dispatch(&launch, rows, entry));
        };
        let single = device.unwritten(len);
        run(GradLogits::Separate(single.into()));
        assert_eq!(bits(&device.download(whole)), bits(&padded), "logits are only read");
        let what = format!("{rows}×{vocab} + {shift} entry {entry}");
        let expected = cross_entropy(&exact, &tokens, vocab);
        let tolerance = Tolerance::relative(2e-6).absolute(2e-6);
        let found = device.download(loss.losses);
        tolerance.check(&found, &expected, &format!("losses {what}"));
        let expected = cross_entropy_gradient(&exact, &tokens, vocab);
        let expected: Vec<f64> = expected.iter().map(|g| g / rows.max(1) as f64).collect();
        let gradient = device.download(single);
        check_gradient(&gradient, &expected, &tokens, rows as u32, 0.0, &what);
        // An in-place gradient is rounded; nothing else is written.
        run(GradLogits::InPlace);
        let rounded: Vec<_> = gradient.into_iter().map(bf16::from_f32).collect();
        let rounded = [&padded[..shift], &rounded, &padded[shift + len..]].concat();
        assert_eq!(bits(&device.download(whole)), bits(&rounded), "in place, {what}");
        same_bits(&device.download(loss.losses), &found, "losses of two runs");
    }
}

fn bits(values: &[bf16]) -> Vec<u16> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Caps of logits in f32 and in bf16, in both entries.
#[test]
fn logits_with_a_cap_match_the_reference() {
    let mut data = Data::new("cross_entropy cap");
    let cases = SIZES.into_iter().flat_map(|size| [(size, 30.0, 40.0), (size, 0.5, 3.0)]);
    for (((rows, vocab), cap, scale), entry) in cases.flat_map(|case| [(case, 0), (case, 1)]) {
        let numbers: Vec<bf16> =
            data.uniform(rows * vocab, scale).into_iter().map(bf16::from_f32).collect();
        let exact: Vec<f64> = numbers.iter().copied().map(f64::from).collect();
        let single: Vec<f32> = numbers.iter().copied().map(f32::from).collect();
        let mut tokens: Vec<u32> = (0..rows).map(|row| (row * 31 % vocab) as u32).collect();
        tokens.iter_mut().skip(3).step_by(4).for_each(|token| *token = IGNORED_TARGET);
        let y = softcap(&exact, cap);
        let expected = cross_entropy(&y, &tokens, vocab);
        let grad: Vec<f64> = cross_entropy_gradient(&y, &tokens, vocab)
            .into_iter()
            .map(|grad| grad / rows.max(1) as f64)
            .collect();
        let grad = softcap_backward(&y, &grad, cap);
        let device = Device::new();
        let logits: [TensorView<u64>; 2] =
            [device.upload(&single).into(), device.upload(&numbers).into()];
        // Errors of the logits: of f32, and 2⁻²⁰.
        for (logits, error) in logits.into_iter().zip([1e-6, 2e-6]) {
            let what = format!("{rows}×{vocab}, cap {cap}, {}, entry {entry}", logits.dtype());
            let found = capped(&device, logits, &tokens, vocab, cap as f32, entry);
            let of_logits = 2.0 * error * cap;
            let tolerance = Tolerance::relative(2e-6).absolute(2e-6 + of_logits);
            tolerance.check(&found[0], &expected, &format!("losses {what}"));
            // An error e of a logit changes its probability p by e · p · (1 − p).
            check_gradient(&found[1], &grad, &tokens, rows as u32, of_logits, &what);
            // In place, as a training step runs it, the gradient has the dtype of the logits.
            let [losses, in_place] = capped_in_place(&device, logits, &tokens, vocab, cap as f32);
            let rounded: Vec<f32> = match logits {
                TensorView::F32(_) => found[1].clone(),
                _ => found[1].iter().map(|grad| bf16::from_f32(*grad).into()).collect(),
            };
            if vocab > 1024 && entry == 1 || vocab <= 1024 && entry == 0 {
                same_bits(&losses, &found[0], "losses in place");
                same_bits(&in_place, &rounded, "the gradient in place");
            }
        }
    }
}

/// Losses and the in-place gradient of the entry that is chosen for the sizes.
fn capped_in_place(
    device: &Device,
    logits: TensorView<u64>,
    tokens: &[u32],
    vocab: usize,
    cap: f32,
) -> [Vec<f32>; 2] {
    let loss = losses_only(device, logits, tokens, tokens.len() as u32, vocab);
    let loss = CrossEntropy { grad_logits: GradLogits::InPlace, softcap: Some(cap), ..loss };
    device.run(&loss.launch().unwrap());
    let gradient = match logits {
        TensorView::F32(logits) => device.download(logits),
        TensorView::Bf16(logits) => device.download(logits).into_iter().map(f32::from).collect(),
        _ => unreachable!("logits are f32 or bf16"),
    };
    [device.download(loss.losses), gradient]
}

/// Losses and gradient in f32, in one of the entries, which repeats its bits.
fn capped(
    device: &Device,
    logits: TensorView<u64>,
    tokens: &[u32],
    vocab: usize,
    cap: f32,
    entry: usize,
) -> [Vec<f32>; 2] {
    let rows = tokens.len();
    let once = || {
        let grad = device.unwritten(rows * vocab);
        let grad_logits = GradLogits::Separate(grad.into());
        let loss = losses_only(device, logits, tokens, rows as u32, vocab);
        let loss = CrossEntropy { grad_logits, softcap: Some(cap), ..loss };
        let launch = loss.launch().unwrap();
        device.run_as(&launch, dispatch(&launch, rows, entry));
        [device.download(loss.losses), device.download(grad)]
    };
    let (first, second) = (once(), once());
    same_bits(&first[0], &second[0], "the losses of two runs");
    same_bits(&first[1], &second[1], "the gradients of two runs");
    first
}

/// An infinite logit becomes the cap, or its negative, and has no gradient. NaN spreads over its
/// row. Nothing past a row enters its sum, and a very large cap changes nothing.
#[test]
fn special_logits_with_a_cap_are_as_documented() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let device = Device::new();
    for entry in [0, 1] {
        let rows = [[inf, -inf, 1.0], [-inf, -inf, -inf], [nan, 0.0, 0.0], [0.0, 0.0, 0.0]];
        let logits = rows.concat();
        let bf16s: Vec<bf16> = logits.iter().copied().map(bf16::from_f32).collect();
        for logits in [device.upload(&logits).into(), device.upload(&bf16s).into()] {
            let [losses, grad] = capped(&device, logits, &[2, 1, 1, 0], 3, 4.0, entry);
            let capped_row: Vec<f64> = [4.0, -4.0, 4.0 * 0.25f64.tanh()].to_vec();
            let expected = cross_entropy(&capped_row, &[2], 3)[0];
            Tolerance::relative(1e-5).check(&losses[..1], &[expected], "an infinite logit");
            assert_eq!(grad[..2], [0.0, 0.0], "no gradient passes a saturated cap");
            let third = 3f64.ln();
            let (found, equal) = ([losses[1], losses[3]], [third, third]);
            Tolerance::relative(1e-6).check(&found, &equal, "equal logits");
            assert_eq!(grad[3..6], [0.0; 3]);
            assert!(losses[2].is_nan() && grad[6..9].iter().all(|g| g.is_nan()));
            let expected = [-2.0 / 12.0, 1.0 / 12.0, 1.0 / 12.0];
            Tolerance::relative(1e-5).check(&grad[9..], &expected, "not capped");
        }
        let mut data = Data::new("cross_entropy large cap");
        let numbers = data.uniform(2 * 37, 5.0);
        let logits = device.upload(&numbers);
        let large = capped(&device, logits.into(), &[3, 36], 37, f32::MAX, entry);
        let [losses, gradient] = run(&numbers, &[3, 36], 37, 2, entry);
        let near = Tolerance::relative(1e-5).absolute(1e-6);
        near.check(&large[0], &doubles(&losses), "losses");
        near.check(&large[1], &doubles(&gradient), "gradient");
    }
    let loss = losses_only(&device, device.upload(&[0.0f32]), &[0], 1, 1);
    for cap in [0.0, -1.0, inf, nan] {
        let error = CrossEntropy { softcap: Some(cap), ..loss }.launch().unwrap_err();
        assert!(matches!(error, KernelError::Constant { .. }), "{error}");
    }
}
