//! Softmax over rows in f64: `exp(x − max) ÷ Σ exp(x − max)`.

/// Number of columns of row `row` that the mask keeps.
fn kept(row: usize, width: usize, causal: bool) -> usize {
    if causal { row % width + 1 } else { width }
}

/// Softmax over rows of `width` elements; causal rows keep the columns up to row mod width.
pub fn softmax(input: &[f64], width: usize, causal: bool) -> Vec<f64> {
    let mut output = vec![0.0; input.len()];
    let rows = input.chunks_exact(width.max(1)).zip(output.chunks_exact_mut(width.max(1)));
    for (row, (input, output)) in rows.enumerate() {
        let kept = kept(row, width, causal);
        output[..kept].copy_from_slice(&distribution(&input[..kept]));
    }
    output
}

/// Softmax of one row. A NaN or a positive infinity, or only negative infinities, gives NaN.
pub(crate) fn distribution(row: &[f64]) -> Vec<f64> {
    let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let terms: Vec<f64> = row.iter().map(|x| (x - max).exp()).collect();
    let sum: f64 = terms.iter().sum();
    terms.iter().map(|term| term / sum).collect()
}

/// `grad_input = probs ⊙ (grad_out − Σ probs ⊙ grad_out)`, 0 in masked columns.
pub fn softmax_backward(probs: &[f64], grad_out: &[f64], width: usize, causal: bool) -> Vec<f64> {
    let mut grad_input = vec![0.0; probs.len()];
    for row in 0..probs.len() / width.max(1) {
        let range = row * width..row * width + kept(row, width, causal);
        let dot: f64 = range.clone().map(|i| probs[i] * grad_out[i]).sum();
        for i in range {
            grad_input[i] = probs[i] * (grad_out[i] - dot);
        }
    }
    grad_input
}
