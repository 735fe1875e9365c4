//! Rotary position embedding in f64.

/// Rotates x, `[batch, seq, heads, head_dim]`, by angles given as cosines and sines,
/// `[seq, head_dim ÷ 2]`; the inverse rotates back.
pub fn rope(
    x: &[f64],
    cos: &[f64],
    sin: &[f64],
    [seq, heads, head_dim]: [usize; 3],
    inverse: bool,
) -> Vec<f64> {
    let half = head_dim / 2;
    let mut out = vec![0.0; x.len()];
    for (row, start) in (0..x.len()).step_by(head_dim.max(1)).enumerate() {
        let position = row / heads % seq;
        for i in 0..half {
            let angle = position * half + i;
            let (cos, sin) = (cos[angle], if inverse { -sin[angle] } else { sin[angle] });
            let (low, high) = (x[start + i], x[start + half + i]);
            out[start + i] = low * cos - high * sin;
            out[start + half + i] = high * cos + low * sin;
        }
    }
    out
}
