//! The matrix products of attention against their references and finite differences.

use retrograph_kernels::attention::reference::unfused::{grad_values, scores, values};
use retrograph_kernels::ops::{
    AttentionGradK, AttentionGradProbs, AttentionGradQ, AttentionGradV, AttentionScores,
    AttentionShape, AttentionValues,
};
use retrograph_kernels::{FoundSizes, KernelError, Launch, View};

use crate::bounds::{chain, within};
use crate::harness::Device;
use crate::support::numbers::{Data, differences, doubles, same_bits};

/// batch, seq, heads, kv_heads, head_dim.
const SHAPES: [[usize; 5]; 7] = [
    [1, 1, 1, 1, 1],
    [2, 7, 4, 2, 6],
    [1, 33, 6, 2, 8],
    [2, 16, 3, 3, 16],
    [3, 5, 4, 1, 12],
    [1, 260, 2, 1, 4],
    [0, 4, 2, 1, 4],
];

const SCALE: f32 = 0.375;

fn shape([batch, seq, heads, kv_heads, head_dim]: [usize; 5]) -> AttentionShape {
    AttentionShape { batch, seq, heads, kv_heads, head_dim }
}

/// Lengths of a query-shaped, a key-shaped and a scores-shaped tensor.
fn lens(s: AttentionShape) -> [usize; 3] {
    let tokens = s.batch * s.seq;
    [
        tokens * s.heads * s.head_dim,
        tokens * s.kv_heads * s.head_dim,
        s.batch * s.heads * s.seq * s.seq,
    ]
}

type F32 = View<u64, f32>;
type Reference = fn(&[f64], &[f64], AttentionShape) -> Vec<f64>;

/// The expected result: `factor` times `reference`, where an element is a sum of `terms` products.
struct Expected {
    reference: Reference,
    factor: f32,
    terms: usize,
}

/// Runs a product with `len` elements twice and compares it with its reference.
fn check(
    what: &str,
    shape: AttentionShape,
    [left, right]: [&[f32]; 2],
    len: usize,
    Expected { reference, factor, terms }: Expected,
    launch: impl Fn(F32, F32, F32) -> Result<Launch<u64>, KernelError>,
) -> Vec<f32> {
    let run = || {
        let device = Device::new();
        let (a, b, c) = (device.upload(left), device.upload(right), device.unwritten(len));
        device.run(&launch(a, b, c).unwrap());
        device.download(c)
    };
    let result = run();
    same_bits(&result, &run(), "two runs");
    let (left, right, factor) = (doubles(left), doubles(right), f64::from(factor));
    let abs = |values: &[f64]| values.iter().map(|v| v.abs()).collect::<Vec<_>>();
    let expected: Vec<_> = reference(&left, &right, shape).iter().map(|y| y * factor).collect();
    let magnitudes = reference(&abs(&left), &abs(&right), shape);
    let bounds: Vec<_> = magnitudes.iter().map(|m| chain(terms, m * factor)).collect();
    within(&result, &expected, &bounds, &format!("{what} {shape:?}"));
    result
}

#[test]
fn products_match_their_references() {
    let mut data = Data::new("attention");
    for shape in SHAPES.map(shape) {
        let [query, key, score] = lens(shape);
        let (q, k) = (data.uniform(query, 2.0), data.uniform(key, 2.0));
        let p = data.uniform(score, 2.0);
        let (d, s, g) = (shape.head_dim, shape.seq, shape.seq * shape.heads / shape.kv_heads);
        let scale = SCALE;
        let expected = Expected { reference: scores, factor: SCALE, terms: d };
        check("scores", shape, [&q, &k], score, expected, |q, k, scores| {
            AttentionScores { q, k, scores, shape, scale }.launch()
        });
        let expected = Expected { reference: values, factor: 1.0, terms: s };
        check("values", shape, [&p, &k], query, expected, |probs, v, out| {
            AttentionValues { probs, v, out, shape }.launch()
        });
        let expected = Expected { reference: scores, factor: 1.0, terms: d };
        check("grad_probs", shape, [&q, &k], score, expected, |grad_out, v, grad_probs| {
            AttentionGradProbs { grad_out, v, grad_probs, shape }.launch()
        });
        let expected = Expected { reference: grad_values, factor: 1.0, terms: g };
        check("grad_v", shape, [&p, &q], key, expected, |probs, grad_out, grad_v| {
            AttentionGradV { probs, grad_out, grad_v, shape }.launch()
        });
        let expected = Expected { reference: values, factor: SCALE, terms: s };
        check("grad_q", shape, [&p, &k], query, expected, |grad_scores, k, grad_q| {
            AttentionGradQ { grad_scores, k, grad_q, shape, scale }.launch()
        });
        let expected = Expected { reference: grad_values, factor: SCALE, terms: g };
        check("grad_k", shape, [&p, &q], key, expected, |grad_scores, q, grad_k| {
            AttentionGradK { grad_scores, q, grad_k, shape, scale }.launch()
        });
    }
}

#[test]
fn gradients_match_finite_differences() {
    let mut data = Data::new("attention differences");
    let (shape, scale) = (shape([2, 3, 4, 2, 5]), SCALE);
    let [query, key, score] = lens(shape);
    let (q, k) = (data.uniform(query, 2.0), data.uniform(key, 2.0));
    let (p, grad_out) = (data.uniform(score, 2.0), data.uniform(query, 2.0));
    let device = Device::new();
    let [q_, k_, p_, grad_] = [&q, &k, &p, &grad_out].map(|tensor| device.upload(tensor));
    let run = |len: usize, launch: &dyn Fn(F32) -> Result<Launch<u64>, KernelError>| {
        let result = device.unwritten(len);
        device.run(&launch(result).unwrap());
        device.download(result)
    };
    let dot = |y: Vec<f64>, g: &[f32], factor: f32| -> f64 {
        y.iter().zip(g).map(|(y, g)| y * f64::from(*g) * f64::from(factor)).sum()
    };
    let close = |actual: &[f32], expected: &[f64], what: &str| {
        // Products are linear in each operand; sums of 40 terms of at most 4 round by less.
        within(actual, expected, &vec![1e-4; expected.len()], what);
    };

    let grad_q = run(query, &|grad_q| {
        AttentionGradQ { grad_scores: p_, k: k_, grad_q, shape, scale }.launch()
    });
    let by_q = |q: &[f64]| dot(scores(q, &doubles(&k), shape), &p, scale);
    close(&grad_q, &differences(&doubles(&q), 1e-3, by_q), "grad_q");

    let grad_k = run(key, &|grad_k| {
        AttentionGradK { grad_scores: p_, q: q_, grad_k, shape, scale }.launch()
    });
    let by_k = |k: &[f64]| dot(scores(&doubles(&q), k, shape), &p, scale);
    close(&grad_k, &differences(&doubles(&k), 1e-3, by_k), "grad_k");

    let grad_v =
        run(key, &|grad_v| AttentionGradV { probs: p_, grad_out: grad_, grad_v, shape }.launch());
    let by_v = |v: &[f64]| dot(values(&doubles(&p), v, shape), &grad_out, 1.0);
    close(&grad_v, &differences(&doubles(&k), 1e-3, by_v), "grad_v");

    let grad_probs = run(score, &|grad_probs| {
        AttentionGradProbs { grad_out: grad_, v: k_, grad_probs, shape }.launch()
    });
    let by_p = |p: &[f64]| dot(values(p, &doubles(&k), shape), &grad_out, 1.0);
    close(&grad_probs, &differences(&doubles(&p), 1e-3, by_p), "grad_probs");
}

#[test]
fn head_counts_that_do_not_divide_are_refused() {
    let view = |len| View::<u64, f32>::new(4096, len);
    let shape = AttentionShape { batch: 1, seq: 2, heads: 3, kv_heads: 2, head_dim: 4 };
    let (q, k, scores) = (view(24), view(16), view(12));
    let launch = AttentionScores { q, k, scores, shape, scale: 1.0 }.launch();
    let message = launch.as_ref().unwrap_err().to_string();
    assert!(
        message.ends_with("must be a multiple of kv_heads, not 0 (found 3 and 2)"),
        "{message}"
    );
    assert!(matches!(launch, Err(KernelError::Shape { found: FoundSizes::Two(3, 2), .. })));
}
