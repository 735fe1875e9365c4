//! Cross-entropy in f64: `loss = ln Σ exp(logits) − logits[target]` for each row.

use crate::attention::reference::softmax::distribution;
use crate::ops::IGNORED_TARGET;

/// The loss of each row of `vocab` logits: 0 if the target is ignored, NaN for any other target
/// that is not below `vocab`.
pub fn cross_entropy(logits: &[f64], targets: &[u32], vocab: usize) -> Vec<f64> {
    let rows = logits.chunks_exact(vocab.max(1)).zip(targets);
    rows.map(|(row, &target)| {
        let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = row.iter().map(|x| (x - max).exp()).sum();
        let otherwise = if target == IGNORED_TARGET { 0.0 } else { f64::NAN };
        row.get(target as usize).map_or(otherwise, |logit| max + sum.ln() - logit)
    })
    .collect()
}

/// `softmax(logits) − onehot(target)`. A row with an ignored target is 0, or NaN if its
/// probabilities are; a row with any other target that is not below `vocab` is NaN.
pub fn cross_entropy_gradient(logits: &[f64], targets: &[u32], vocab: usize) -> Vec<f64> {
    let mut gradient = Vec::with_capacity(logits.len());
    for (row, &target) in logits.chunks_exact(vocab.max(1)).zip(targets) {
        let mut probabilities = distribution(row);
        match probabilities.get_mut(target as usize) {
            Some(probability) => *probability -= 1.0,
            None if target == IGNORED_TARGET => probabilities.iter_mut().for_each(|p| *p *= 0.0),
            None => probabilities.fill(f64::NAN),
        }
        gradient.append(&mut probabilities);
    }
    gradient
}

/// `Σ x ÷ max(counted, 1)`: the mean over the `counted` values that are not ignored.
pub fn mean(x: &[f64], counted: u32) -> f64 {
    x.iter().sum::<f64>() / f64::from(counted.max(1))
}
