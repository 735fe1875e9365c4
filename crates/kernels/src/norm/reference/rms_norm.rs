//! RMSNorm in f64: `y = x · rsqrt(mean(x²) + eps) · gamma` for each row.

/// The results of the forward pass.
#[derive(Clone, Debug, PartialEq)]
pub struct RmsNormForward {
    /// The normalized rows, `[rows, width]`.
    pub y: Vec<f64>,
    /// `rsqrt(mean(x²) + eps)` of each row.
    pub rstd: Vec<f64>,
}

/// RMSNorm of the rows of `x`. The width is the length of `gamma`.
pub fn rms_norm(x: &[f64], gamma: &[f64], eps: f64) -> RmsNormForward {
    let width = gamma.len();
    let mut forward = RmsNormForward { y: Vec::with_capacity(x.len()), rstd: Vec::new() };
    for row in x.chunks_exact(width.max(1)) {
        let mean = row.iter().map(|x| x * x).sum::<f64>() / width as f64;
        let rstd = 1.0 / (mean + eps).sqrt();
        forward.y.extend(row.iter().zip(gamma).map(|(x, gamma)| x * rstd * gamma));
        forward.rstd.push(rstd);
    }
    forward
}

/// The results of the backward pass.
#[derive(Clone, Debug, PartialEq)]
pub struct RmsNormGradients {
    /// The gradient of the input, `[rows, width]`.
    pub grad_input: Vec<f64>,
    /// The gradient of gamma, `[width]`.
    pub grad_gamma: Vec<f64>,
}

/// Gradients of [`rms_norm`]: with `h = x · rstd` and `u = gamma ⊙ grad_out`,
/// `grad_input = rstd · (u − h · mean(u ⊙ h))` and `grad_gamma = Σ_rows grad_out ⊙ h`.
pub fn rms_norm_backward(x: &[f64], gamma: &[f64], grad_out: &[f64], eps: f64) -> RmsNormGradients {
    let width = gamma.len();
    let rstd = rms_norm(x, gamma, eps).rstd;
    let mut grad_input = Vec::with_capacity(x.len());
    let mut grad_gamma = vec![0.0; width];
    let rows = x.chunks_exact(width.max(1)).zip(grad_out.chunks_exact(width.max(1)));
    for ((x, grad_out), rstd) in rows.zip(rstd) {
        let products = (0..width).map(|c| gamma[c] * grad_out[c] * x[c] * rstd);
        let mean = products.sum::<f64>() / width as f64;
        for c in 0..width {
            let h = x[c] * rstd;
            grad_input.push(rstd * (gamma[c] * grad_out[c] - h * mean));
            grad_gamma[c] += grad_out[c] * h;
        }
    }
    RmsNormGradients { grad_input, grad_gamma }
}
