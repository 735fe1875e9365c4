//! The DPO loss, its derivatives and log-ratios against their references.

use retrograph_kernels::loss::reference::{Preferred, preference};
use retrograph_kernels::ops::{LogRatios, Preference, ScaleRows};

use crate::harness::Device;
use crate::support::numbers::{Data, Tolerance, doubles, same_bits};

#[test]
fn log_ratios_are_sums_in_f64() {
    for (sequences, seq) in [(1, 1), (3, 7), (2, 256), (4, 1001)] {
        let mut data = Data::new("log-ratios");
        let [policy, reference] = [(); 2].map(|()| data.uniform(sequences * seq, 9.0));
        let run = || {
            let device = Device::new();
            let ratios = device.upload(&vec![f64::NAN; sequences]);
            let (policy, reference) = (device.upload(&policy), device.upload(&reference));
            device.run(&LogRatios { policy, reference, ratios, seq }.launch().unwrap());
            device.download(ratios)
        };
        let found = run();
        assert_eq!(found, run());
        for (row, ratio) in found.iter().enumerate() {
            let part = |losses: &[f32]| doubles(&losses[row * seq..][..seq]).iter().sum::<f64>();
            let expected = part(&reference) - part(&policy);
            assert!((ratio - expected).abs() < 1e-9, "{ratio}, expected {expected}");
        }
    }
}

/// The outputs of the kernel: losses, chosen, rejected, correct, weights.
fn run(ratios: &[f64], beta: f32, label_smoothing: f32) -> [Vec<f32>; 5] {
    let device = Device::new();
    let pairs = ratios.len() / 2;
    let ratios = device.upload(ratios);
    let [losses, chosen, rejected, correct] = [(); 4].map(|()| device.unwritten(pairs));
    let weights = device.unwritten(2 * pairs);
    let rewards = [chosen, rejected];
    let launch = Preference { ratios, losses, rewards, correct, weights, beta, label_smoothing };
    device.run(&launch.launch().unwrap());
    [losses, chosen, rejected, correct, weights].map(|view| device.download(view))
}

#[test]
fn pairs_match_the_reference() {
    let mut ratios = vec![0.0, 0.0, 3.0, -2.0, -2.0, 3.0, 800.0, -800.0, -800.0, 800.0, 1e-7, 0.0];
    ratios.extend(doubles(&Data::new("pairs").uniform(2 * 300, 40.0)));
    for (beta, wrong) in [(0.1, 0.0), (0.5, 0.0), (0.1, 0.25), (2.0, 0.49)] {
        let found = run(&ratios, beta, wrong);
        for (first, second) in found.iter().zip(run(&ratios, beta, wrong)) {
            same_bits(first, &second, "two runs");
        }
        let pairs: Vec<Preferred> = ratios
            .chunks_exact(2)
            .map(|pair| preference([pair[0], pair[1]], f64::from(beta), f64::from(wrong)))
            .collect();
        let of = |part: fn(&Preferred) -> f64| pairs.iter().map(part).collect::<Vec<_>>();
        let tolerance = Tolerance::relative(4e-7).absolute(1e-30);
        // The argument of the exponential is rounded to f32; above 90 it does not matter.
        let rounded = 90.0 * f64::from(f32::EPSILON) / 2.0 + 4e-7;
        Tolerance::relative(rounded).check(&found[0], &of(|pair| pair.loss), "losses");
        tolerance.check(&found[1], &of(|pair| pair.rewards[0]), "chosen");
        tolerance.check(&found[2], &of(|pair| pair.rewards[1]), "rejected");
        let correct = of(|pair| f64::from(u8::from(pair.rewards[0] > pair.rewards[1])));
        tolerance.check(&found[3], &correct, "correct");
        let weights: Vec<f64> = pairs.iter().flat_map(|pair| [pair.weight, -pair.weight]).collect();
        // With label smoothing, a weight is a difference.
        let absolute = if wrong > 0.0 { 1e-7 * f64::from(beta) } else { 1e-30 };
        Tolerance::relative(rounded).absolute(absolute).check(&found[4], &weights, "weights");
    }
}

/// The reference, by central differences of its loss.
#[test]
fn weights_are_derivatives() {
    for (pair, beta, wrong) in [([1.5, -0.5], 0.3, 0.0), ([-2.0, 1.0], 0.7, 0.1)] {
        // A ratio decreases as the negative log-probability increases.
        let moved = |by: f64| preference([pair[0] - by, pair[1]], beta, wrong).loss;
        let slope = (moved(1e-6) - moved(-1e-6)) / 2e-6;
        let weight = preference(pair, beta, wrong).weight;
        assert!((slope - weight).abs() < 1e-9, "{slope}, weight {weight}");
        let moved = |by: f64| preference([pair[0], pair[1] - by], beta, wrong).loss;
        let slope = (moved(1e-6) - moved(-1e-6)) / 2e-6;
        assert!((slope + weight).abs() < 1e-9);
    }
}

#[test]
fn a_ratio_that_is_not_finite_reaches_its_pair() {
    let [losses, .., weights] = run(&[f64::NAN, 0.0, 1.0, 0.0], 0.1, 0.0);
    assert!(losses[0].is_nan() && weights[..2].iter().all(|weight| weight.is_nan()));
    assert!(losses[1].is_finite());
}

#[test]
fn rows_are_scaled_by_their_factor() {
    for (rows, width, count) in [(1, 1, 1), (6, 5, 3), (4, 1000, 2), (4, 300, 4)] {
        let device = Device::new();
        let x = Data::new("rows").uniform(rows * width, 1.0);
        let values: Vec<f32> = (0..count).map(|factor| factor as f32 - 0.5).collect();
        let (input, scales) = (device.upload(&x), device.upload(&values));
        let out = device.unwritten(rows * width);
        device.run(&ScaleRows { x: input, scales, out, rows }.launch().unwrap());
        let of = |at: usize| values[at / width / (rows / count)];
        let expected: Vec<f32> = x.iter().enumerate().map(|(at, x)| x * of(at)).collect();
        same_bits(&device.download(out), &expected, "scaled rows");
    }
    let device = Device::new();
    let (x, scales) = (device.upload(&[0.0f32; 6]), device.upload(&[1.0f32; 2]));
    assert!(ScaleRows { x, scales, out: x, rows: 3 }.launch().is_err());
}
