//! Sampling against its reference.

use retrograph_kernels::ops::{MarkSeenTokens, Sample, SamplingParameters, sample_chunks};
use retrograph_kernels::sampling::reference::{adjusted, scores, threshold};

use crate::harness::Device;
use crate::support::numbers::{Data, doubles};

const PLAIN: SamplingParameters = SamplingParameters {
    temperature: 1.0,
    top_k: 0,
    top_p: 1.0,
    repetition_penalty: 1.0,
    seed: 7,
    draw: 0,
};

struct Outcome {
    token: usize,
    status: u32,
    /// The smallest value that is kept.
    least: f32,
}

fn run(logits: &[f32], seen: &[u32], sampling: SamplingParameters) -> Outcome {
    let device = Device::new();
    let chunks = sample_chunks(logits.len());
    let (selection, sampled) = (device.upload(&[9u32; 2]), device.upload(&[u32::MAX; 2]));
    let sample = Sample {
        logits: device.upload(logits),
        seen: device.upload(seen),
        sampling: device.upload(&sampling.words()),
        adjusted: device.unwritten(logits.len()),
        maxima: device.unwritten(chunks),
        selection,
        scores: device.unwritten(chunks),
        tokens: device.upload(&vec![u32::MAX; chunks]),
        sampled,
    };
    for launch in sample.launches().unwrap() {
        device.run(&launch);
    }
    let key = device.download(selection)[1];
    let bits = if key >> 31 == 0 { !key } else { key ^ (1 << 31) };
    let least = if key == 0 { f32::NEG_INFINITY } else { f32::from_bits(bits) };
    let sampled = device.download(sampled);
    Outcome { token: sampled[0] as usize, status: sampled[1], least }
}

/// Checks that the token is kept, and that no other is better by more than rounding.
fn check(logits: &[f32], seen: &[u32], sampling: SamplingParameters) -> usize {
    let outcome = run(logits, seen, sampling);
    let what = format!("{} tokens, {sampling:?}", logits.len());
    assert_eq!(outcome.status, 0, "{what}");
    let flags: Vec<bool> = seen.iter().map(|&seen| seen != 0).collect();
    // The penalty is a single f32 operation.
    let z: Vec<f64> = adjusted(&doubles(logits), &flags, sampling.repetition_penalty.into())
        .into_iter()
        .map(|z| f64::from(z as f32))
        .collect();
    let active = sampling.temperature > 0.0;
    let least = threshold(&z, sampling);
    let kept = |least: f64| z.iter().filter(|&&z| z >= least).count();
    if active && sampling.top_p >= 1.0 && (1..logits.len()).contains(&(sampling.top_k as usize)) {
        assert_eq!(f64::from(outcome.least), least, "{what}");
    } else if active && sampling.top_p < 1.0 {
        // If top-p is reached up to rounding, one token more or less may be kept.
        let (ours, theirs) = (kept(outcome.least.into()), kept(least));
        assert!(ours.abs_diff(theirs) <= 1 + theirs / 1000, "{what}: {ours} kept, not {theirs}");
    }
    assert!(!active || z[outcome.token] >= f64::from(outcome.least), "{what}");
    let scores = scores(&z, sampling);
    let best = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let score = scores[outcome.token];
    assert!(score >= best - 1e-4 * best.abs().max(1.0), "{what}: {score} is not {best}");
    outcome.token
}

#[test]
fn every_sampling_method_agrees_with_the_reference() {
    let mut data = Data::new("sampling");
    let samplings: [fn(usize) -> SamplingParameters; 6] = [
        |_| SamplingParameters { temperature: 0.0, ..PLAIN },
        |_| PLAIN,
        |vocab| SamplingParameters { temperature: 0.7, top_k: (vocab / 7) as u32, ..PLAIN },
        |_| SamplingParameters { temperature: 1.3, top_p: 0.8, ..PLAIN },
        |_| SamplingParameters {
            temperature: 0.7,
            top_k: 20,
            top_p: 0.8,
            repetition_penalty: 1.1,
            ..PLAIN
        },
        |_| SamplingParameters {
            top_k: 3,
            top_p: 0.99,
            repetition_penalty: 0.5,
            seed: u64::MAX,
            ..PLAIN
        },
    ];
    for vocab in [1, 2, 31, 256, 1023, 1024, 1025, 5003, 20_000] {
        for (index, sampling) in samplings.iter().enumerate() {
            let logits = data.uniform(vocab, 8.0);
            let seen = data.tokens(vocab, 2);
            check(
                &logits,
                &seen,
                SamplingParameters { draw: index as u32 * 1000, ..sampling(vocab) },
            );
        }
    }
}

#[test]
fn the_same_seed_and_draw_give_the_same_token_and_others_give_others() {
    let mut data = Data::new("sampling draws");
    let (logits, seen) = (data.uniform(97, 1.0), vec![0; 97]);
    let tokens: Vec<_> =
        (0..40).map(|draw| check(&logits, &seen, SamplingParameters { draw, ..PLAIN })).collect();
    let mut different = tokens.clone();
    different.sort_unstable();
    different.dedup();
    assert!(different.len() > 10, "{tokens:?}");
    assert_eq!(tokens[5], run(&logits, &seen, SamplingParameters { draw: 5, ..PLAIN }).token);
    let other = SamplingParameters { seed: 8, ..PLAIN };
    let others =
        (0..40).map(|draw| run(&logits, &seen, SamplingParameters { draw, ..other }).token);
    assert_ne!(tokens, others.collect::<Vec<_>>());
}

#[test]
fn greedy_takes_the_lowest_of_tied_tokens_and_ties_are_kept() {
    let mut logits = vec![0.5; 3000];
    for token in [1999, 1200, 2500] {
        logits[token] = 2.0;
    }
    let greedy = SamplingParameters { temperature: 0.0, ..PLAIN };
    assert_eq!(run(&logits, &vec![0; 3000], greedy).token, 1200);
    let outcome = run(&logits, &vec![0; 3000], SamplingParameters { top_k: 2, ..PLAIN });
    assert_eq!(outcome.least, 2.0);
    // More equal logits than the candidate list can hold.
    let flat = vec![-1.25; 9000];
    for sampling in [
        SamplingParameters { top_k: 5, ..PLAIN },
        SamplingParameters { top_p: 0.5, ..PLAIN },
        SamplingParameters { top_k: 100, top_p: 0.1, ..PLAIN },
    ] {
        assert_eq!(run(&flat, &vec![0; 9000], sampling).least, -1.25, "{sampling:?}");
        check(&flat, &vec![0; 9000], sampling);
    }
}

#[test]
fn extreme_logits_and_settings_choose_a_possible_token() {
    let mut data = Data::new("sampling extremes");
    let seen = vec![1; 600];
    for scale in [1e-30, 1e30] {
        let logits = data.uniform(600, scale);
        let greedy = SamplingParameters { temperature: 0.0, repetition_penalty: 1.5, ..PLAIN };
        check(&logits, &seen, greedy);
        for temperature in [1e-30, 1e30] {
            let sampling = SamplingParameters { temperature, top_k: 50, ..PLAIN };
            check(&logits, &seen, sampling);
        }
    }
    // If only one token is possible, it stays.
    let mut logits = vec![f32::NEG_INFINITY; 600];
    logits[431] = -3.0e38;
    for sampling in [
        PLAIN,
        SamplingParameters { temperature: 0.0, ..PLAIN },
        SamplingParameters { top_k: 4, top_p: 0.5, ..PLAIN },
        SamplingParameters { top_p: 0.0, ..PLAIN },
    ] {
        let outcome = run(&logits, &vec![0; 600], sampling);
        assert_eq!((outcome.token, outcome.status), (431, 0), "{sampling:?}");
    }
}

#[test]
fn logits_that_are_not_finite_are_reported_and_give_token_0() {
    let mut data = Data::new("sampling special");
    for value in [f32::NAN, f32::INFINITY] {
        for at in [0, 1500, 2999] {
            let mut logits = data.uniform(3000, 1.0);
            logits[at] = value;
            for temperature in [0.0, 1.0] {
                let sampling = SamplingParameters { temperature, top_k: 9, top_p: 0.9, ..PLAIN };
                let outcome = run(&logits, &vec![0; 3000], sampling);
                assert_eq!((outcome.token, outcome.status), (0, 1), "{value} at {at}");
            }
        }
    }
    let nothing = vec![f32::NEG_INFINITY; 40];
    let outcome = run(&nothing, &[0; 40], PLAIN);
    assert_eq!((outcome.token, outcome.status), (0, 1));
}

#[test]
fn tokens_are_marked_once_and_others_not_at_all() {
    let device = Device::new();
    let seen = device.upload(&[0u32; 8]);
    let tokens = device.upload(&[3, 3, 8, u32::MAX, 0, 5, 6]);
    let count = device.upload(&[6u32]);
    device.run(&MarkSeenTokens { tokens, seen, count: Some(count) }.launch().unwrap());
    assert_eq!(device.download(seen), [1, 0, 0, 1, 0, 1, 0, 0]);
    device.run(&MarkSeenTokens { tokens, seen, count: None }.launch().unwrap());
    assert_eq!(device.download(seen), [1, 0, 0, 1, 0, 1, 1, 0]);
}
