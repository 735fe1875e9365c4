//! Cross-entropy in double precision: `loss = ln Σ exp(logits) − logits[target]` for each row.

use super::softmax::distribution;

/// The loss of each row of `vocab` logits; NaN for a target that is not below `vocab`.
pub fn cross_entropy(logits: &[f64], targets: &[u32], vocab: usize) -> Vec<f64> {
    let rows = logits.chunks_exact(vocab.max(1)).zip(targets);
    rows.map(|(row, &target)| {
        let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = row.iter().map(|x| (x - max).exp()).sum();
        row.get(target as usize).map_or(f64::NAN, |logit| max + sum.ln() - logit)
    })
    .collect()
}

/// `softmax(logits) − onehot(target)`; NaN for a row whose target is not below `vocab`.
pub fn cross_entropy_gradient(logits: &[f64], targets: &[u32], vocab: usize) -> Vec<f64> {
    let mut gradient = Vec::with_capacity(logits.len());
    for (row, &target) in logits.chunks_exact(vocab.max(1)).zip(targets) {
        let mut probabilities = distribution(row);
        match probabilities.get_mut(target as usize) {
            Some(probability) => *probability -= 1.0,
            None => probabilities.fill(f64::NAN),
        }
        gradient.append(&mut probabilities);
    }
    gradient
}
