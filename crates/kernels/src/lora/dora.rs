//! DoRA: a trained magnitude for each row of an updated weight.
//!
//! ```text
//! n = ‖W + s·B·A‖ of each row, mag_norm_scales = m / n            DoraNorms
//! y = z ⊙ mag_norm_scales + bias, with z = x·Wᵀ + s·(x·Aᵀ)·Bᵀ     DoraScale
//! dz = dy ⊙ mag_norm_scales, dm = Σ dy ⊙ z / n                    DoraScaleBackward
//! ```
//!
//! The backward pass treats n as a constant. A and B have the gradients of LoRA, computed from dz.
//!
//! Source: Liu et al., "DoRA: Weight-Decomposed Low-Rank Adaptation", arXiv 2402.09353, with the
//! constant norm of its section 4.3.

mod norms;
mod scale;

pub use norms::{DORA_NORMS, DoraNorms};
pub use scale::{DORA_SCALE, DORA_SCALE_BACKWARD, DoraScale, DoraScaleBackward, DoraScaleShape};

/// References in f64.
pub mod reference {
    /// Returns the norms of the rows of `w + scale·b·a`, where w is `[outputs, inputs]` and a is
    /// `[rank, inputs]`.
    pub fn norms(
        [w, a, b]: [&[f64]; 3],
        [outputs, inputs, rank]: [usize; 3],
        scale: f64,
    ) -> Vec<f64> {
        let row = |row: usize| {
            let element = |column: usize| {
                let ranks = 0..rank;
                let update = ranks.map(|at| b[row * rank + at] * a[at * inputs + column]);
                w[row * inputs + column] + scale * update.sum::<f64>()
            };
            (0..inputs).map(element).map(|x| x * x).sum::<f64>().sqrt()
        };
        (0..outputs).map(row).collect()
    }

    /// Returns `x ⊙ mag_norm_scales + bias`.
    pub fn scale(x: &[f64], mag_norm_scales: &[f64], bias: &[f64]) -> Vec<f64> {
        let columns = mag_norm_scales.len();
        let element =
            |(at, x): (usize, &f64)| x * mag_norm_scales[at % columns] + bias[at % columns];
        x.iter().enumerate().map(element).collect()
    }

    /// Returns `grad_out ⊙ mag_norm_scales`, and the sums of `grad_out ⊙ x / norms` over the rows.
    pub fn scale_backward(
        [grad_out, x]: [&[f64]; 2],
        [mag_norm_scales, norms]: [&[f64]; 2],
    ) -> [Vec<f64>; 2] {
        let columns = mag_norm_scales.len();
        let mut grad_magnitudes = vec![0.0; columns];
        for (at, (grad, x)) in grad_out.iter().zip(x).enumerate() {
            grad_magnitudes[at % columns] += grad * x;
        }
        grad_magnitudes.iter_mut().zip(norms).for_each(|(sum, norm)| *sum /= norm);
        let grads =
            grad_out.iter().enumerate().map(|(at, grad)| grad * mag_norm_scales[at % columns]);
        [grads.collect(), grad_magnitudes]
    }
}
