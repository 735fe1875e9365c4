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

/// A sequence to sample from.
#[derive(Clone)]
struct Row {
    logits: Vec<f32>,
    seen: Vec<u32>,
    sampling: SamplingParameters,
}

/// Words before and after an output, which must not be written.
const MARGIN: usize = 8;
/// The words of outputs before the launches, and around them.
const POISON: u32 = 0xdead_beef;

/// The outputs of the launches for `rows`, as bits: a list for each operand.
fn outputs(rows: &[Row]) -> [Vec<u32>; 6] {
    let device = Device::new();
    let vocab = rows[0].logits.len();
    let (count, chunks) = (rows.len(), rows.len() * sample_chunks(vocab));
    let seen: Vec<u32> = rows.iter().flat_map(|row| row.seen.clone()).collect();
    let logits: Vec<f32> = rows.iter().flat_map(|row| row.logits.clone()).collect();
    let sampling: Vec<u32> = rows.iter().flat_map(|row| row.sampling.words()).collect();
    let integers = |len: usize| device.upload(&vec![POISON; len + 2 * MARGIN]);
    let floats = |len: usize| device.upload(&vec![f32::from_bits(POISON); len + 2 * MARGIN]);
    let integers = [2 * count, chunks, 2 * count].map(integers);
    let floats = [logits.len(), chunks, chunks].map(floats);
    let [selection, tokens, sampled] = integers.map(|it| it.slice(MARGIN..it.len() - MARGIN));
    let [adjusted, maxima, scores] = floats.map(|it| it.slice(MARGIN..it.len() - MARGIN));
    let (logits, seen) = (device.upload(&logits), device.upload(&seen));
    let sampling = device.upload(&sampling);
    let sample = Sample {
        logits,
        seen,
        sampling,
        adjusted,
        maxima,
        selection,
        scores,
        tokens,
        sampled,
        vocab,
    };
    for launch in sample.launches().unwrap() {
        device.run(&launch);
    }
    let bits = |view| device.download(view).into_iter().map(f32::to_bits).collect();
    let [adjusted, maxima, scores] = floats.map(bits);
    let [selection, tokens, sampled] = integers.map(|it| device.download(it));
    [adjusted, maxima, scores, selection, tokens, sampled].map(|words: Vec<u32>| {
        let (before, output) = words.split_at(MARGIN);
        let (output, after) = output.split_at(output.len() - MARGIN);
        assert!(before.iter().chain(after).all(|&word| word == POISON), "{before:x?} {after:x?}");
        output.to_vec()
    })
}

fn run(logits: &[f32], seen: &[u32], sampling: SamplingParameters) -> Outcome {
    let row = Row { logits: logits.to_vec(), seen: seen.to_vec(), sampling };
    let [_, _, _, selection, _, sampled] = outputs(&[row]);
    let key = selection[1];
    let bits = if key >> 31 == 0 { !key } else { key ^ (1 << 31) };
    let least = if key == 0 { f32::NEG_INFINITY } else { f32::from_bits(bits) };
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
    device.run(&MarkSeenTokens { tokens, seen, count: Some(count), vocab: 8 }.launch().unwrap());
    assert_eq!(device.download(seen), [1, 0, 0, 1, 0, 1, 0, 0]);
    device.run(&MarkSeenTokens { tokens, seen, count: None, vocab: 8 }.launch().unwrap());
    assert_eq!(device.download(seen), [1, 0, 0, 1, 0, 1, 1, 0]);
}

#[test]
fn sequences_are_sampled_as_alone() {
    let mut data = Data::new("sampling of several sequences");
    for (vocab, count) in [(1, 3), (1023, 5), (1025, 2), (1030, 64), (5000, 9)] {
        let mut rows: Vec<_> = (0..count as u32)
            .map(|row| Row {
                logits: data.uniform(vocab, 6.0),
                seen: data.tokens(vocab, 2),
                sampling: SamplingParameters {
                    temperature: [0.0, 0.7, 1.3][row as usize % 3],
                    top_k: [0, 20, 1, 400][row as usize % 4],
                    top_p: [1.0, 0.8, 0.95, 0.3, 1.0][row as usize % 5],
                    repetition_penalty: [1.0, 1.2][row as usize % 2],
                    seed: u64::from(row % 7) << 30,
                    draw: row / 2,
                },
            })
            .collect();
        rows[1].logits[vocab / 2] = f32::NAN;
        let together = outputs(&rows);
        for (index, row) in rows.iter().enumerate() {
            let alone = outputs(std::slice::from_ref(row));
            let what = format!("sequence {index} of {count}, {vocab} tokens");
            for (together, alone) in together[..5].iter().zip(&alone[..5]) {
                let len = alone.len();
                assert_eq!(together[index * len..(index + 1) * len], *alone, "{what}");
            }
            let [sampled, alone] = [&together[5], &alone[5]];
            assert_eq!([sampled[index], sampled[count + index]], alone[..], "{what}");
            assert_eq!(sampled[count + index], u32::from(index == 1), "{what}");
        }
        assert_eq!(together, outputs(&rows));
    }
}

#[test]
fn operands_that_do_not_match_are_refused_by_name() {
    let device = Device::new();
    let sample = Sample {
        logits: device.unwritten(20),
        seen: device.upload(&[0; 20]),
        sampling: device.upload(&[0; 2 * SamplingParameters::LEN]),
        adjusted: device.unwritten(20),
        maxima: device.unwritten(2),
        selection: device.upload(&[0; 4]),
        scores: device.unwritten(2),
        tokens: device.upload(&[0; 2]),
        sampled: device.upload(&[0; 4]),
        vocab: 10,
    };
    sample.launches().unwrap();
    let one = device.upload(&[0u32; 1]);
    let refused = |sample: Sample<_>| sample.launches().unwrap_err().to_string();
    for (name, sample) in [
        ("vocabulary", Sample { vocab: 0, ..sample }),
        ("logits", Sample { vocab: 7, ..sample }),
        ("seen", Sample { seen: one, ..sample }),
        ("sampling", Sample { sampling: one, ..sample }),
        ("maxima", Sample { maxima: device.unwritten(1), ..sample }),
        ("selection", Sample { selection: one, ..sample }),
        ("scores", Sample { scores: device.unwritten(1), ..sample }),
        ("tokens", Sample { tokens: one, ..sample }),
        ("sampled", Sample { sampled: one, ..sample }),
        ("sequences", Sample { logits: device.unwritten(65_536), vocab: 1, ..sample }),
    ] {
        let error = refused(sample);
        assert!(error.contains(name), "{name}: {error}");
    }
    let tokens = device.upload(&[0u32; 3]);
    for len in [0, 8, 10, 13] {
        let seen = device.upload(&vec![0u32; len]);
        let error = MarkSeenTokens { tokens, seen, count: None, vocab: 4 }.launch().unwrap_err();
        assert!(error.to_string().contains("seen"), "{error}");
    }
}

#[test]
fn the_token_of_each_sequence_is_marked_in_its_row() {
    let device = Device::new();
    let tokens = device.upload(&[2, 0, 5, u32::MAX, 4]);
    let seen = device.upload(&[0u32; 25]);
    device.run(&MarkSeenTokens { tokens, seen, count: None, vocab: 5 }.launch().unwrap());
    let expected: Vec<u32> = (0..25).map(|at| [2, 5, 24].contains(&at).into()).collect();
    assert_eq!(device.download(seen), expected);
}
