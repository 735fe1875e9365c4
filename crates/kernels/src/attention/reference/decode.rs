//! Attention of one token over a cache, in f64.

use std::ops::Range;

use super::forward::{add, dot};
use super::softmax::distribution;
use crate::attention::KvCacheShape;

/// `Σ_j softmax(score(q·key_j)) · value_j` for every head, over `positions` of caches
/// `[capacity, kv_heads, head_dim]`. `score` is the scale, and the cap if there is one.
pub fn decode_attention(
    q: &[f64],
    keys: &[f64],
    values: &[f64],
    positions: Range<usize>,
    shape: KvCacheShape,
    score: impl Fn(f64) -> f64,
) -> Vec<f64> {
    let KvCacheShape { heads, kv_heads, head_dim, .. } = shape;
    let mut out = vec![0.0; heads * head_dim];
    for (head, out) in out.chunks_exact_mut(head_dim.max(1)).enumerate() {
        let kv_head = head / (heads / kv_heads);
        let row = |position: usize| {
            let first = (position * kv_heads + kv_head) * head_dim;
            first..first + head_dim
        };
        let q = &q[head * head_dim..][..head_dim];
        let scores = positions.clone().map(|position| score(dot(q, &keys[row(position)])));
        let weights = distribution(&scores.collect::<Vec<_>>());
        for (weight, position) in weights.iter().zip(positions.clone()) {
            add(out, *weight, &values[row(position)]);
        }
    }
    out
}
