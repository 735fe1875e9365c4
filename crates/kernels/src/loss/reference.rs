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

/// `softmax(logits) − onehot(target)`. A row with an ignored target is 0; a row with any other
/// target that is not below `vocab` is NaN.
pub fn cross_entropy_gradient(logits: &[f64], targets: &[u32], vocab: usize) -> Vec<f64> {
    let mut gradient = Vec::with_capacity(logits.len());
    for (row, &target) in logits.chunks_exact(vocab.max(1)).zip(targets) {
        let mut probabilities = distribution(row);
        match probabilities.get_mut(target as usize) {
            Some(probability) => *probability -= 1.0,
            None if target == IGNORED_TARGET => probabilities.fill(0.0),
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

/// The results of a pair of [`Preference`](super::Preference).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Preferred {
    /// The loss.
    pub loss: f64,
    /// β times each log-ratio.
    pub rewards: [f64; 2],
    /// The derivative of the loss with respect to the negative log-probability of the chosen
    /// sequence. The weight of the rejected sequence is its negative.
    pub weight: f64,
}

/// Returns the results of a pair; `ratios` are the log-ratios of the chosen and the rejected
/// sequence.
pub fn preference(ratios: [f64; 2], beta: f64, label_smoothing: f64) -> Preferred {
    let rewards = ratios.map(|ratio| beta * ratio);
    let x = rewards[0] - rewards[1];
    // −ln σ(x).
    let softplus = |x: f64| x.max(0.0) + (-x.abs()).exp().ln_1p();
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let (right, wrong) = (1.0 - label_smoothing, label_smoothing);
    Preferred {
        loss: right * softplus(-x) + wrong * softplus(x),
        rewards,
        weight: beta * (right * sigmoid(-x) - wrong * sigmoid(x)),
    }
}
