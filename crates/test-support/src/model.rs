//! Parts of a language model in `f64`, for references. Compiled with optimization, unlike tests.

use super::reference::{add, dot, product};

/// A token's vector.
pub type Row = Vec<f64>;

/// `w·x` for a matrix `[outputs, inputs]` and each row x.
pub fn products(w: &[f64], rows: &[Row]) -> Vec<Row> {
    rows.iter().map(|x| product(w, x)).collect()
}

/// Adds `factor·from` to each row.
pub fn add_rows(to: &mut [Row], factor: f64, from: &[Row]) {
    assert_eq!(to.len(), from.len(), "the numbers of rows");
    to.iter_mut().zip(from).for_each(|(to, from)| add(to, factor, from));
}

/// Adds `bias` to each row.
pub fn add_to_rows(to: &mut [Row], bias: &[f64]) {
    to.iter_mut().for_each(|to| add(to, 1.0, bias));
}

/// `x ÷ √(mean of x² + eps) · gain`.
pub fn rms_norm(x: &[f64], gain: &[f64], eps: f64) -> Row {
    let root = (dot(x, x) / x.len() as f64 + eps).sqrt();
    x.iter().zip(gain).map(|(x, gain)| x / root * gain).collect()
}

/// `x·sigmoid(x)`.
pub fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

/// GELU by its approximation with tanh.
pub fn gelu_tanh(x: f64) -> f64 {
    let root = std::f64::consts::FRAC_2_PI.sqrt();
    0.5 * x * (1.0 + (root * (x + 0.044715 * x.powi(3))).tanh())
}

/// `activation(gate)·up`, element by element.
pub fn gated(gate: &[Row], up: &[Row], activation: fn(f64) -> f64) -> Vec<Row> {
    let row = |(gate, up): (&Row, &Row)| {
        gate.iter().zip(up).map(|(&gate, up)| activation(gate) * up).collect()
    };
    gate.iter().zip(up).map(row).collect()
}

/// `cap·tanh(x ÷ cap)`, or x without a cap.
pub fn cap(x: f64, cap: Option<f64>) -> f64 {
    cap.map_or(x, |cap| cap * (x / cap).tanh())
}

/// The rotation of pairs (i, i + half) by `position` times their frequency. Pairs without a
/// frequency stay as they are.
pub fn rotated(x: &[f64], position: usize, frequencies: &[f64]) -> Row {
    let half = x.len() / 2;
    let turned = |i: usize| {
        let angle = frequencies.get(i % half).map_or(0.0, |angle| position as f64 * angle);
        let (sin, cos) = angle.sin_cos();
        let other = if i < half { -x[i + half] } else { x[i - half] };
        x[i] * cos + other * sin
    };
    (0..x.len()).map(turned).collect()
}

/// One head of attention: its scale, and the cap of its scores.
#[derive(Clone, Copy)]
pub struct Head {
    /// What products of queries and keys are multiplied by.
    pub scale: f64,
    /// The cap of scores.
    pub cap: Option<f64>,
    /// The index of the first element of the head in rows of keys and values.
    pub start: usize,
}

impl Head {
    /// The mean of `values` by the softmax of the scores of `query` with `keys`.
    pub fn attend(self, query: &[f64], keys: &[Row], values: &[Row]) -> Row {
        let own = self.start..self.start + query.len();
        let score = |key: &Row| cap(dot(query, &key[own.clone()]) * self.scale, self.cap).exp();
        let weights: Row = keys.iter().map(score).collect();
        let sum: f64 = weights.iter().sum();
        let mut out = vec![0.0; query.len()];
        for (weight, value) in weights.iter().zip(values) {
            add(&mut out, weight / sum, &value[own.clone()]);
        }
        out
    }
}

/// The cross-entropy of the softmax of `logits` and a target.
pub fn cross_entropy(logits: &[f64], target: usize) -> f64 {
    let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logits.iter().map(|logit| (logit - largest).exp()).sum();
    largest + sum.ln() - logits[target]
}
