//! Embedding lookup and its gradient in f64.

/// Row `tokens[t]` of `table` for each position `t`; NaN for a token that is not in the table.
pub fn embedding(tokens: &[u32], table: &[f64], hidden: usize) -> Vec<f64> {
    let row = |token: u32| {
        let start = token as usize * hidden;
        table.get(start..start + hidden).map_or_else(|| vec![f64::NAN; hidden], <[f64]>::to_vec)
    };
    tokens.iter().flat_map(|&token| row(token)).collect()
}

/// Adds the row of `grad_out` of every position to the row of its token in `grad_table`. Tokens
/// that are not in the table are skipped.
pub fn embedding_backward(tokens: &[u32], grad_out: &[f64], grad_table: &mut [f64], hidden: usize) {
    for (position, &token) in tokens.iter().enumerate() {
        let start = token as usize * hidden;
        let Some(row) = grad_table.get_mut(start..start + hidden) else { continue };
        for (sum, grad) in row.iter_mut().zip(&grad_out[position * hidden..]) {
            *sum += grad;
        }
    }
}
