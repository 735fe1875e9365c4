//! Attention of one token over a cache, in f64.

use std::ops::Range;

use super::softmax::distribution;
use crate::attention::KvCacheShape;

/// `Σ_j softmax(scale · q·key_j) · value_j` for every head, over `positions` of caches
/// `[capacity, kv_heads, head_dim]`.
pub fn decode_attention(
    q: &[f64],
    keys: &[f64],
    values: &[f64],
    positions: Range<usize>,
    shape: KvCacheShape,
    scale: f64,
) -> Vec<f64> {
    let KvCacheShape { heads, kv_heads, head_dim, .. } = shape;
    let mut out = vec![0.0; heads * head_dim];
    for head in 0..heads {
        let kv_head = head / (heads / kv_heads);
        let at = |position: usize, d: usize| (position * kv_heads + kv_head) * head_dim + d;
        let score = |position: usize| {
            let dot = (0..head_dim).map(|d| q[head * head_dim + d] * keys[at(position, d)]);
            dot.sum::<f64>() * scale
        };
        let weights = distribution(&positions.clone().map(score).collect::<Vec<_>>());
        for d in 0..head_dim {
            let weighted = weights.iter().zip(positions.clone());
            let terms = weighted.map(|(weight, j)| weight * values[at(j, d)]);
            out[head * head_dim + d] = terms.sum();
        }
    }
    out
}
