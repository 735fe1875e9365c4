//! Cross-entropy and its gradient against their references.

use retrograph_kernels::Dispatch;
use retrograph_kernels::ops::CrossEntropy;
use retrograph_kernels::reference::cross_entropy::{cross_entropy, cross_entropy_gradient};

use crate::harness::Device;
use crate::support::{Data, Tolerance, differences, doubles, same_bits};

/// Rows and vocabularies: one, primes, a warp and one past it, both entries, several per thread.
const SIZES: [(usize, usize); 9] =
    [(0, 5), (1, 1), (3, 7), (5, 32), (6, 33), (9, 256), (2, 1024), (3, 1025), (2, 5003)];

/// Losses and gradient, by warps (0) or by blocks (1).
fn run(
    logits: &[f32],
    targets: &[u32],
    (vocab, grad_scale): (usize, f32),
    entry: usize,
) -> [Vec<f32>; 2] {
    let once = || {
        let device = Device::new();
        let (rows, gradient) = (targets.len(), device.upload(logits));
        let (targets, losses) = (device.upload(targets), device.unwritten(rows));
        let launch = CrossEntropy { logits: gradient, targets, losses, rows, vocab, grad_scale };
        let launch = launch.launch().unwrap();
        let (blocks, threads) = [(rows.div_ceil(4), 128), (rows, 1024)][entry];
        let grid = [blocks as u32, 1, 1];
        let entry = launch.kernel.entries[entry];
        let forced = Dispatch { entry, grid, block: [threads, 1, 1], shared_bytes: 0 };
        device.run_as(&launch, forced);
        if launch.dispatch(device.target()).entry == entry {
            assert_eq!(launch.dispatch(device.target()), forced);
        }
        [device.download(losses), device.download(gradient)]
    };
    let (first, second) = (once(), once());
    same_bits(&first[0], &second[0], "the losses of two runs");
    same_bits(&first[1], &second[1], "the gradients of two runs");
    first
}

/// Compares with the reference.
#[track_caller]
fn check(logits: &[f32], targets: &[u32], (vocab, grad_scale): (usize, f32), entry: usize) {
    let [losses, gradient] = run(logits, targets, (vocab, grad_scale), entry);
    let logits = doubles(logits);
    let expected = cross_entropy(&logits, targets, vocab);
    // Rounding of the difference to the maximum, of the sum and of its logarithm.
    let what = format!("{}×{vocab} entry {entry}", targets.len());
    let tolerance = Tolerance::relative(2e-6).absolute(2e-6);
    tolerance.check(&losses, &expected, &format!("losses {what}"));
    let expected = cross_entropy_gradient(&logits, targets, vocab);
    let expected: Vec<f64> = expected.iter().map(|g| g * f64::from(grad_scale)).collect();
    // As for softmax; the gradient at the target is the difference of two numbers up to 1.
    let tolerance = Tolerance::relative(1.5e-5).absolute(2e-7 * f64::from(grad_scale.abs()));
    tolerance.check(&gradient, &expected, &format!("gradient {what}"));
}

#[test]
fn losses_and_gradients_match_the_reference() {
    let mut data = Data::new("cross_entropy");
    for ((rows, vocab), entry) in SIZES.iter().flat_map(|size| [0, 1].map(|entry| (*size, entry))) {
        for (scale, grad_scale) in [(1.0, 1.0), (30.0, 0.125), (1e-30, -2.0), (1e30, 1.0)] {
            let logits = data.uniform(rows * vocab, scale);
            let targets: Vec<u32> = (0..rows).map(|row| (row * 31 % vocab) as u32).collect();
            check(&logits, &targets, (vocab, grad_scale), entry);
        }
    }
}

#[test]
fn unknown_tokens_give_nan_and_touch_nothing_else() {
    let mut data = Data::new("cross_entropy tokens");
    for entry in [0, 1] {
        let logits = data.uniform(5 * 37, 2.0);
        let targets = [3, 37, 0, u32::MAX, 36];
        check(&logits, &targets, (37, 1.0), entry);
        let [losses, gradient] = run(&logits, &targets, (37, 1.0), entry);
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
fn special_logits_are_as_documented() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    for entry in [0, 1] {
        for specials in [vec![nan], vec![inf], vec![-inf], vec![-inf; 40], vec![nan; 40]] {
            for (start, target) in [(0, 0), (17, 0), (39, 39), (5, 5)] {
                let mut logits: Vec<f32> = (0..3 * 40).map(|i| (i % 7) as f32).collect();
                for (x, special) in logits[40..80].iter_mut().skip(start).zip(&specials) {
                    *x = *special;
                }
                check(&logits, &[1, target, 2], (40, 1.0), entry);
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
    let [_, gradient] = run(&logits, &targets, (vocab, 0.25), 0);
    let mean = |x: &[f64]| cross_entropy(x, &targets, vocab).iter().sum::<f64>() / rows as f64;
    let expected = differences(&doubles(&logits), 1e-4, mean);
    Tolerance::relative(1e-5).absolute(1e-6).check(&gradient, &expected, "differences");
}
