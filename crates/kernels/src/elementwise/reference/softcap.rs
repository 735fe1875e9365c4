//! Soft-capping in f64.

/// `cap · tanh(x / cap)`.
pub fn softcap(x: &[f64], cap: f64) -> Vec<f64> {
    x.iter().map(|x| cap * (x / cap).tanh()).collect()
}

/// The gradient of x, from the result `y` of [`softcap`].
pub fn softcap_backward(y: &[f64], grad_out: &[f64], cap: f64) -> Vec<f64> {
    y.iter().zip(grad_out).map(|(y, grad)| grad * (1.0 - (y / cap).powi(2))).collect()
}
