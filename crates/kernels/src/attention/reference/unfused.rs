//! The matrix products of attention in f64.

use crate::ops::AttentionShape;

/// Index arithmetic of the three layouts.
impl AttentionShape {
    /// The index of an element of `[batch, seq, heads, head_dim]`.
    fn query_at(self, [batch, token, head, d]: [usize; 4]) -> usize {
        ((batch * self.seq + token) * self.heads + head) * self.head_dim + d
    }

    /// The index of an element of `[batch, seq, kv_heads, head_dim]`, in the key head of `head`.
    fn key_at(self, [batch, token, head, d]: [usize; 4]) -> usize {
        let kv_head = head / (self.heads / self.kv_heads);
        ((batch * self.seq + token) * self.kv_heads + kv_head) * self.head_dim + d
    }

    /// The index of an element of `[batch, heads, seq, seq]`.
    fn score_at(self, [batch, head, row, column]: [usize; 4]) -> usize {
        ((batch * self.heads + head) * self.seq + row) * self.seq + column
    }

    /// Every (batch, head, row, column, d).
    fn indices(self) -> impl Iterator<Item = [usize; 5]> {
        let Self { batch, seq, heads, head_dim, .. } = self;
        (0..batch * heads * seq * seq * head_dim).map(move |i| {
            let (rest, d) = (i / head_dim, i % head_dim);
            let (rest, column) = (rest / seq, rest % seq);
            let (rest, row) = (rest / seq, rest % seq);
            [rest / heads, rest % heads, row, column, d]
        })
    }

    /// Number of elements of a query-shaped tensor.
    fn query_len(self) -> usize {
        self.batch * self.seq * self.heads * self.head_dim
    }

    /// Number of elements of a key-shaped tensor.
    fn key_len(self) -> usize {
        self.batch * self.seq * self.kv_heads * self.head_dim
    }

    /// Number of elements of a scores-shaped tensor.
    fn score_len(self) -> usize {
        self.batch * self.heads * self.seq * self.seq
    }
}

/// `q·kᵀ`, unscaled. Applied to the gradient of the output and v, it is the gradient of
/// probabilities.
pub fn scores(q: &[f64], k: &[f64], shape: AttentionShape) -> Vec<f64> {
    let mut scores = vec![0.0; shape.score_len()];
    for [batch, head, row, column, d] in shape.indices() {
        let q = q[shape.query_at([batch, row, head, d])];
        let k = k[shape.key_at([batch, column, head, d])];
        scores[shape.score_at([batch, head, row, column])] += q * k;
    }
    scores
}

/// `probs·v`. Applied to the gradient of scores and k, it is the gradient of q, unscaled.
pub fn values(probs: &[f64], v: &[f64], shape: AttentionShape) -> Vec<f64> {
    let mut out = vec![0.0; shape.query_len()];
    for [batch, head, row, column, d] in shape.indices() {
        let prob = probs[shape.score_at([batch, head, row, column])];
        let v = v[shape.key_at([batch, column, head, d])];
        out[shape.query_at([batch, row, head, d])] += prob * v;
    }
    out
}

/// `Σ over the heads of a group of probsᵀ·grad_out`: the gradient of v. Applied to the gradient of
/// scores and q, it is the gradient of k, unscaled.
pub fn grad_values(probs: &[f64], grad_out: &[f64], shape: AttentionShape) -> Vec<f64> {
    let mut grad_v = vec![0.0; shape.key_len()];
    for [batch, head, row, column, d] in shape.indices() {
        let prob = probs[shape.score_at([batch, head, row, column])];
        let grad = grad_out[shape.query_at([batch, row, head, d])];
        grad_v[shape.key_at([batch, column, head, d])] += prob * grad;
    }
    grad_v
}
