//! Clipping by the global norm in f64.

/// The global norm of a list of gradients and the factor that clips them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClipFactor {
    /// `sqrt(Σ g²)` over every element of every tensor.
    pub norm: f64,
    /// `min(1, max_norm / norm)`, and 0 when the norm is not finite.
    pub scale: f64,
}

/// Norm and factor of a list of gradients.
pub fn clip_factor(gradients: &[&[f64]], max_norm: f64) -> ClipFactor {
    let norm = gradients.iter().flat_map(|tensor| tensor.iter()).map(|g| g * g).sum::<f64>().sqrt();
    let scale = match norm {
        _ if !norm.is_finite() => 0.0,
        _ if norm > max_norm => max_norm / norm,
        _ => 1.0,
    };
    ClipFactor { norm, scale }
}

/// `g · scale`, and 0 for every element, NaN included, when `scale` is 0.
pub fn clip(gradient: &[f64], scale: f64) -> Vec<f64> {
    gradient.iter().map(|g| if scale == 0.0 { 0.0 } else { g * scale }).collect()
}
