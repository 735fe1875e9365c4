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

/// Causal attention: its sizes, scale, cap and bounds.
#[derive(Clone, Copy, Debug)]
pub struct CausalAttention<'a> {
    /// The sizes.
    pub shape: AttentionShape,
    /// The softmax scale.
    pub scale: f64,
    /// The cap of the scores.
    pub softcap: Option<f64>,
    /// `[batch, seq]`: the first key of each query; 0 if `None`.
    pub first_keys: Option<&'a [u32]>,
}

/// One query, which attends to the keys from its first one up to its own token.
#[derive(Clone, Copy)]
struct Query {
    shape: AttentionShape,
    /// The first key.
    first: usize,
    batch: usize,
    head: usize,
    token: usize,
}

impl Query {
    fn all(attention: CausalAttention<'_>) -> impl Iterator<Item = Self> {
        let AttentionShape { batch, seq, heads, .. } = attention.shape;
        (0..batch * heads * seq).map(move |i| {
            let (plane, token) = (i / seq, i % seq);
            let (batch, head) = (plane / heads, plane % heads);
            let first = attention.first_keys.map_or(0, |keys| keys[batch * seq + token] as usize);
            Self { shape: attention.shape, first, batch, head, token }
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

    /// The dot products of its row of `queries` with the rows of `keys` that it attends to.
    fn products(self, queries: &[f64], keys: &[f64]) -> Vec<f64> {
        let query = self.row(queries);
        let key = |token| &keys[self.key_offset(token)..][..self.shape.head_dim];
        (self.first..=self.token).map(|token| dot(query, key(token))).collect()
    }

    fn row(self, queries: &[f64]) -> &[f64] {
        &queries[self.offset()..][..self.shape.head_dim]
    }
}

/// The dot product of two vectors of the same length. A loop, like [`add`], because iterators are
/// several times slower without optimization, as in tests.
pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    let (mut sum, mut i) = (0.0, 0);
    while i < a.len() {
        sum += a[i] * b[i];
        i += 1;
    }
    sum
}

/// Adds `factor · from` to a vector of the same length.
pub(super) fn add(to: &mut [f64], factor: f64, from: &[f64]) {
    let mut i = 0;
    while i < to.len() {
        to[i] += factor * from[i];
        i += 1;
    }
}

impl CausalAttention<'_> {
    /// The score of a product of a query and a key, and its derivative.
    pub fn score(self, product: f64) -> [f64; 2] {
        let score = self.scale * product;
        self.softcap.map_or([score, self.scale], |cap| {
            let tanh = (score / cap).tanh();
            [cap * tanh, self.scale * (1.0 - tanh * tanh)]
        })
    }

    /// `softmax(score(q·kᵀ))·v`.
    pub fn forward(self, [q, k, v]: [&[f64]; 3]) -> AttentionForward {
        let (mut out, mut lse) = (vec![0.0; q.len()], Vec::new());
        let width = self.shape.head_dim;
        for query in Query::all(self) {
            let products = query.products(q, k);
            let scores: Vec<_> = products.iter().map(|product| self.score(*product)[0]).collect();
            let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = scores.iter().map(|score| (score - max).exp()).sum();
            lse.push(max * std::f64::consts::LOG2_E + sum.log2());
            let out = &mut out[query.offset()..][..width];
            for (token, prob) in (query.first..).zip(distribution(&scores)) {
                add(out, prob, &v[query.key_offset(token)..][..width]);
            }
        }
        AttentionForward { out, lse }
    }

    /// The gradients of [`CausalAttention::forward`] for `grad_out`.
    pub fn backward(self, [q, k, v]: [&[f64]; 3], grad_out: &[f64]) -> AttentionGradients {
        let width = self.shape.head_dim;
        let [grad_q, grad_k, grad_v] = [q, k, v].map(|operand| vec![0.0; operand.len()]);
        let mut grads = AttentionGradients { q: grad_q, k: grad_k, v: grad_v };
        for query in Query::all(self) {
            let products = query.products(q, k);
            let scores: Vec<_> = products.iter().map(|product| self.score(*product)[0]).collect();
            let probs = distribution(&scores);
            let grad_probs = query.products(grad_out, v);
            let mean = dot(&probs, &grad_probs);
            for (j, (prob, grad_prob)) in probs.iter().zip(&grad_probs).enumerate() {
                let start = query.key_offset(query.first + j);
                let grad_score = prob * (grad_prob - mean) * self.score(products[j])[1];
                add(&mut grads.q[query.offset()..][..width], grad_score, &k[start..][..width]);
                add(&mut grads.k[start..][..width], grad_score, query.row(q));
                add(&mut grads.v[start..][..width], *prob, query.row(grad_out));
            }
        }
        grads
    }
}
