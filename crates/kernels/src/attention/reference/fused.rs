//! Causal attention and its gradients in double precision, query by query.

use super::softmax::distribution;
use crate::ops::AttentionShape;

/// What the forward pass gives.
#[derive(Clone, Debug)]
pub struct Attended {
    /// `[batch, seq, heads, head_dim]`.
    pub out: Vec<f64>,
    /// `[batch, heads, seq]`: the logarithm to base 2 of the sum of `exp(score)`.
    pub lse: Vec<f64>,
}

/// The gradients of q, k and v, in their layouts.
#[derive(Clone, Debug)]
pub struct Gradients {
    /// Of q.
    pub q: Vec<f64>,
    /// Of k.
    pub k: Vec<f64>,
    /// Of v.
    pub v: Vec<f64>,
}

/// One query: where it is, and the keys that it sees.
#[derive(Clone, Copy)]
struct Query {
    shape: AttentionShape,
    batch: usize,
    head: usize,
    token: usize,
}

impl Query {
    fn all(shape: AttentionShape) -> impl Iterator<Item = Self> {
        let AttentionShape { batch, seq, heads, .. } = shape;
        (0..batch * heads * seq).map(move |i| {
            let (plane, token) = (i / seq, i % seq);
            Self { shape, batch: plane / heads, head: plane % heads, token }
        })
    }

    /// Where its elements begin in a query-shaped tensor.
    fn start(self) -> usize {
        let AttentionShape { seq, heads, head_dim, .. } = self.shape;
        ((self.batch * seq + self.token) * heads + self.head) * head_dim
    }

    /// Where the elements of key `token` begin in a key-shaped tensor.
    fn key(self, token: usize) -> usize {
        let AttentionShape { seq, heads, kv_heads, head_dim, .. } = self.shape;
        let kv_head = self.head / (heads / kv_heads);
        ((self.batch * seq + token) * kv_heads + kv_head) * head_dim
    }

    /// The products of its row of `queries` with the rows of `keys` that it sees.
    fn products(self, queries: &[f64], keys: &[f64]) -> Vec<f64> {
        let query = self.row(queries);
        let key = |token| &keys[self.key(token)..][..self.shape.head_dim];
        (0..=self.token).map(|token| dot(query, key(token))).collect()
    }

    fn row(self, queries: &[f64]) -> &[f64] {
        &queries[self.start()..][..self.shape.head_dim]
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(to: &mut [f64], factor: f64, from: &[f64]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to += factor * from);
}

/// `softmax(scale · q·kᵀ)·v` with the causal mask.
pub fn attend([q, k, v]: [&[f64]; 3], shape: AttentionShape, scale: f64) -> Attended {
    let (mut out, mut lse) = (vec![0.0; q.len()], Vec::new());
    for query in Query::all(shape) {
        let scores: Vec<_> = query.products(q, k).iter().map(|score| scale * score).collect();
        let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = scores.iter().map(|score| (score - max).exp()).sum();
        lse.push(max * std::f64::consts::LOG2_E + sum.log2());
        let out = &mut out[query.start()..][..shape.head_dim];
        for (token, prob) in distribution(&scores).into_iter().enumerate() {
            add(out, prob, &v[query.key(token)..][..shape.head_dim]);
        }
    }
    Attended { out, lse }
}

/// The gradients of [`attend`] for `grad_out`.
pub fn attend_backward(
    [q, k, v]: [&[f64]; 3],
    grad_out: &[f64],
    shape: AttentionShape,
    scale: f64,
) -> Gradients {
    let width = shape.head_dim;
    let mut grads =
        Gradients { q: vec![0.0; q.len()], k: vec![0.0; k.len()], v: vec![0.0; v.len()] };
    for query in Query::all(shape) {
        let scores: Vec<_> = query.products(q, k).iter().map(|score| scale * score).collect();
        let probs = distribution(&scores);
        let grad_probs = query.products(grad_out, v);
        let mean = dot(&probs, &grad_probs);
        for (token, (prob, grad_prob)) in probs.iter().zip(&grad_probs).enumerate() {
            let (start, grad_score) = (query.key(token), prob * (grad_prob - mean) * scale);
            add(&mut grads.q[query.start()..][..width], grad_score, &k[start..][..width]);
            add(&mut grads.k[start..][..width], grad_score, query.row(q));
            add(&mut grads.v[start..][..width], *prob, query.row(grad_out));
        }
    }
    grads
}
