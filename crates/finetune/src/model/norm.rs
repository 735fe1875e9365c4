//! RMSNorm with the model's `eps`: one value, used by both directions.

use retrograph_kernels::ops::{
    NormPrologue, ResidualAdd, RmsNorm, RmsNormBackward, RmsNormGammaReduce,
};
use retrograph_runtime::Slice;

use super::activation::{Activation, Forms};
use super::builder::{Builder, Gradient, Weight};
use super::residual::Residual;
use crate::error::Result;

/// What the backward pass needs from the forward pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Saved {
    /// The input, in one buffer.
    pub(super) x: Slice<f32>,
    gamma: Weight,
    /// `None` where products take the norm, which has no backward pass.
    rstd: Option<Slice<f32>>,
}

/// As [`forward`] for whole tokens, whose norm is left to the products behind it where there is one
/// token and nothing is trained.
pub(super) fn of_tokens(
    builder: &mut Builder,
    (residual, gamma): (Residual, Weight),
    forms: Forms,
) -> Result<(Activation, Saved)> {
    if builder.cache.is_none() || residual.x.len() != gamma.value.len() {
        return forward(builder, (residual, gamma), forms);
    }
    let x = residual.settle(builder)?;
    let norm = NormPrologue { gamma: gamma.floats(), eps: builder.config.model.rms_norm_eps };
    Ok((Activation::to_be_normed(x, norm), Saved { x, gamma, rstd: None }))
}

/// Appends `y = x / rms(x) · gamma` for each run of as many elements as gamma has: a token's, or
/// one head's of a token. `forms` says how y is read. What is still to be added to x is added by
/// the same launch.
pub(super) fn forward(
    builder: &mut Builder,
    (residual, gamma): (Residual, Weight),
    forms: Forms,
) -> Result<(Activation, Saved)> {
    let Residual { x, addend } = residual;
    let width = gamma.value.len();
    let rows = x.len() / width;
    let residual = addend
        .map(|residual| ResidualAdd { residual, sum: builder.transient("sum", residual.len()) });
    let normed = Activation::transient(builder, ("normed", rows * width), forms);
    let rstd = builder.transient("rstd", rows);
    let eps = builder.config.model.rms_norm_eps;
    let (y, gains) = (normed.written(), gamma.floats());
    builder.launch(RmsNorm { x, residual, gamma: gains, y, rstd, rows, width, eps }.launch())?;
    let x = residual.map_or(x, |residual| residual.sum);
    Ok((normed, Saved { x, gamma, rstd: Some(rstd) }))
}

/// Appends the gradient of the input, and that of gamma where it is trained, from one to three
/// gradients of the output, which are added in this order.
///
/// The backward kernel uses the reciprocal roots that the forward kernel stored, so that there is
/// no second `eps` that could differ.
pub(super) fn backward(
    builder: &mut Builder,
    saved: Saved,
    grad_out: &[Slice<f32>],
    grad_input: Gradient,
) -> Result<()> {
    let Saved { x, gamma, rstd } = saved;
    let rstd = rstd.expect("a pass that trains has no cache");
    let width = gamma.value.len();
    let rows = x.len() / width;
    let partial_rows = RmsNormBackward::<()>::partial_rows(rows);
    let partials = gamma.grad.map(|_| builder.transient("gamma_partials", partial_rows * width));
    builder.launch(
        RmsNormBackward {
            x,
            gamma: gamma.floats(),
            rstd,
            grad_out,
            grad_input: grad_input.to.written(),
            gamma_partials: partials,
            rows,
            width,
            accumulate: grad_input.accumulate,
        }
        .launch(),
    )?;
    let Some((partials, grad_gamma)) = partials.zip(gamma.grad) else { return Ok(()) };
    builder.gradient(grad_gamma, |grad_gamma| {
        RmsNormGammaReduce { partials, grad_gamma, partial_rows, width }.launch()
    })
}
