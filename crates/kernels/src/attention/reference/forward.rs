//! Causal attention and its gradients in f64, query by query.

use super::softmax::distribution;
use crate::attention::AttentionShape;

/// The results of the forward pass.
#[derive(Clone, Debug)]
pub struct AttentionForward {
    /// `[batch, seq, heads, head_dim]`.
    pub out: Vec<f64>,
    /// `[batch, heads, seq]`: the log-sum-exp of the scores, to base 2.
    pub lse: Vec<f64>,
}

/// The gradients of q, k and v, in their layouts.
#[derive(Clone, Debug)]
pub struct AttentionGradients {
    /// Of q.
    pub q: Vec<f64>,
    /// Of k.
    pub k: Vec<f64>,
    /// Of v.
    pub v: Vec<f64>,
}

/// One query, which attends to the keys up to its own token.
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

    /// The offset of its row in a query-shaped tensor.
    fn offset(self) -> usize {
        let AttentionShape { seq, heads, head_dim, .. } = self.shape;
        ((self.batch * seq + self.token) * heads + self.head) * head_dim
    }

    /// The offset of the row of key `token` in a key-shaped tensor.
    fn key_offset(self, token: usize) -> usize {
        let AttentionShape { seq, heads, kv_heads, head_dim, .. } = self.shape;
        let kv_head = self.head / (heads / kv_heads);
        ((self.batch * seq + token) * kv_heads + kv_head) * head_dim
    }

    /// The products of its row of `queries` with the rows of `keys` that it attends to.
    fn products(self, queries: &[f64], keys: &[f64]) -> Vec<f64> {
        let query = self.row(queries);
        let key = |token| &keys[self.key_offset(token)..][..self.shape.head_dim];
        (0..=self.token).map(|token| dot(query, key(token))).collect()
    }

    fn row(self, queries: &[f64]) -> &[f64] {
        &queries[self.offset()..][..self.shape.head_dim]
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(to: &mut [f64], factor: f64, from: &[f64]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to += factor * from);
}

/// `softmax(scale · q·kᵀ)·v` with the causal mask.
pub fn attention([q, k, v]: [&[f64]; 3], shape: AttentionShape, scale: f64) -> AttentionForward {
    let (mut out, mut lse) = (vec![0.0; q.len()], Vec::new());
    for query in Query::all(shape) {
        let scores: Vec<_> = query.products(q, k).iter().map(|score| scale * score).collect();
        let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = scores.iter().map(|score| (score - max).exp()).sum();
        lse.push(max * std::f64::consts::LOG2_E + sum.log2());
        let out = &mut out[query.offset()..][..shape.head_dim];
        for (token, prob) in distribution(&scores).into_iter().enumerate() {
            add(out, prob, &v[query.key_offset(token)..][..shape.head_dim]);
        }
    }
    AttentionForward { out, lse }
}

/// The gradients of [`attention`] for `grad_out`.
pub fn attention_backward(
    [q, k, v]: [&[f64]; 3],
    grad_out: &[f64],
    shape: AttentionShape,
    scale: f64,
) -> AttentionGradients {
    let width = shape.head_dim;
    let mut grads =
        AttentionGradients { q: vec![0.0; q.len()], k: vec![0.0; k.len()], v: vec![0.0; v.len()] };
    for query in Query::all(shape) {
        let scores: Vec<_> = query.products(q, k).iter().map(|score| scale * score).collect();
        let probs = distribution(&scores);
        let grad_probs = query.products(grad_out, v);
        let mean = dot(&probs, &grad_probs);
        for (token, (prob, grad_prob)) in probs.iter().zip(&grad_probs).enumerate() {
            let (start, grad_score) = (query.key_offset(token), prob * (grad_prob - mean) * scale);
            add(&mut grads.q[query.offset()..][..width], grad_score, &k[start..][..width]);
            add(&mut grads.k[start..][..width], grad_score, query.row(q));
            add(&mut grads.v[start..][..width], *prob, query.row(grad_out));
        }
    }
    grads
}
